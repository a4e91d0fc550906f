"""How long an encoder's output is where nothing asks for a length."""

from .config_view import ConfigView


def encoder_tokens(view: ConfigView, inner: ConfigView) -> int:
    """How many tokens a cross-attention sees when nothing is asked for: the encoder's maximum."""
    source = inner.optional("max_source_positions")
    if source is not None:
        return source
    if view.config.get("vision_config") is not None:
        vision = view.child("vision_config")
        image, patch = vision.get("image_size"), vision.get("patch_size")
        if type(image) is int and type(patch) is int and 0 < patch <= image:
            tiles, side = vision.optional("max_num_tiles") or 1, image // patch
            formula = "derived: tiles * ((image_size / patch_size)^2 + 1)"
            return int(view.note("encoder_tokens", tiles * (side * side + 1), formula))
    limit = inner.optional("max_position_embeddings")
    return limit if limit is not None else 512
