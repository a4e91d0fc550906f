"""Text of a stranger's, as it may be shown."""


def printable(text: str) -> str:
    """Control, bidi and other invisible characters as escapes: a model's names are a stranger's."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        char.encode("unicode_escape").decode() if is_hidden(char) else char for char in text
    )


def is_hidden(char: str) -> bool:
    """Whether it moves the cursor, turns the text around, ends the line or cannot be seen."""
    if char.isprintable():
        return False
    import unicodedata

    return unicodedata.category(char) != "Zs"  # blanks of other widths
