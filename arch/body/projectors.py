"""What joins a tower to the language model: (the wrapper's config, the tower's, the language
model's) -> parameters. Those of a single lineage stand beside it."""

from ..config_view import ConfigView


def linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    return (inputs + bias) * outputs


def two_matrices(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """To the width of the language model, and once more."""
    out = text.integer("hidden_size")
    return linear(tower.integer("hidden_size"), out) + linear(out, out)


def no_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """The tower ends in its own merger."""
    return 0


def downsampling(view: ConfigView) -> int:
    """Patches that are joined along each side, by default of all these classes 2."""
    return view.optional("downsample_factor") or 2
