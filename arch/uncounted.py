"""Why the total of a model cannot be known from its config, or is not counted."""

# Types without a row that counts them, where more can be said than that.
REASONS = {
    **dict.fromkeys(
        ("fast_vlm", "gemma3n", "perception_lm"),
        "its vision tower is a model of the library timm, whose sizes no config gives",
    ),
    **dict.fromkeys(
        ("chameleon", "emu3", "janus"), "its image tokenizer is a convolutional network of its own"
    ),
    **dict.fromkeys(
        ("musicgen", "musicgen_melody", "moshi"), "its audio codec is a network of its own"
    ),
    **dict.fromkeys(
        ("qwen2_5_omni", "qwen3_omni_moe"), "its talker and its audio codec are not counted"
    ),
    **dict.fromkeys(("blip-2", "instructblip", "instructblipvideo"), "its Q-Former is not counted"),
    "phi4_multimodal": "its towers for images and sound are not counted",
    "evolla": "its protein encoder is not counted",
}


class UncountedError(Exception):
    """A part of the model that no row counts; the message is a clause that says which."""


def no_row(model_type: str) -> UncountedError:
    """For a type that the tables of bodies and wrappers lack."""
    default = f"no row counts what {model_type} holds outside attention"
    return UncountedError(REASONS.get(model_type, default))


def unknown_class(names: tuple[str, ...] | None) -> UncountedError:
    """For a class whose head no row describes."""
    shown = names[0][:80] if names else "the class"
    return UncountedError(f"the head of {shown} is not counted")
