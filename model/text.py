"""Text of a stranger's, as it may be shown."""


def printable(text: str) -> str:
    """Control, bidi and other invisible characters as escapes: a model's names are a stranger's."""
    if text.isascii() and text.isprintable():
        return text
    import unicodedata

    return "".join(
        char if unicodedata.category(char)[0] != "C" else char.encode("unicode_escape").decode()
        for char in text
    )
