"""Why the total of a model cannot be known from its config, or is not counted."""


class UncountedError(Exception):
    """A part of the model that is not counted; the message is a clause that says which."""


def no_body(model_type: str, reason: str | None) -> UncountedError:
    """For a type without a body, with the `reason` that its architecture gives."""
    return UncountedError(reason or f"what {model_type} holds outside attention is not described")


def unknown_class(names: tuple[str, ...] | None) -> UncountedError:
    """For a class whose head is not described."""
    shown = names[0][:80] if names else "the class"
    return UncountedError(f"the head of {shown} is not counted")


def other_layers(name: str, base: str) -> UncountedError:
    """For a class whose layers may be others than those that the config's type is audited as."""
    return UncountedError(f"how the layers of {name} differ from those of {base} is not described")


TIMM = "its vision tower is a model of the library timm, whose sizes no config gives"
IMAGE_TOKENIZER = "its image tokenizer is a convolutional network of its own"
AUDIO_CODEC = "its audio codec is a network of its own"
