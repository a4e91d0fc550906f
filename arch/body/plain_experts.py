"""Experts in the layers of an encoder-decoder (NLLB-MoE, Switch), and embeddings for each stack."""

from headcount.model.numbers import whole

from ..config_view import ConfigView
from .body import Layers
from .feed_forward import matrices


def embedding_copies(view: ConfigView, layers: Layers) -> int:
    """Untied, each stack has an embedding of its own beside the shared one."""
    copies = 0 if view.flag("tie_word_embeddings") else 2
    return copies * view.integer("vocab_size") * view.integer("hidden_size")


def sparse_experts(view: ConfigView, layers: Layers) -> int:
    """NLLB-MoE and Switch: in every n-th layer of a stack plain experts in place of the MLP, which
    is taken away here, and their router."""
    hidden, count = view.integer("hidden_size"), view.integer("num_experts")
    biased = view.flag("router_bias")
    router = count * (hidden + biased)
    return sum(
        (count - 1) * expert(view, layer.stack) + router
        for layer in layers
        if is_sparse(view, layer.stack, layer.index)
    )


def expert(view: ConfigView, stack: str) -> int:
    """Parameters of one expert of a stack."""
    hidden, wide = view.integer("hidden_size"), view.optional(f"{stack}_ffn_dim")
    if wide is not None:  # NLLB-MoE
        return matrices(hidden, wide, gated=False, bias=True)
    return matrices(hidden, view.integer("d_ff"), gated=False)


def is_sparse(view: ConfigView, stack: str, index: int) -> bool:
    """Every n-th layer: from the n-th one on in NLLB-MoE, from the second one on in Switch, whose
    n follows from the number of sparse layers unless the file says it."""
    said = whole(view.config.get(f"{stack}_sparse_step"))
    sparse = view.optional(f"num_sparse_{stack}_layers", minimum=0)
    if sparse is None:
        step = view.integer(f"{stack}_sparse_step", minimum=0)
        return step > 0 and (index + 1) % step == 0
    name = "num_layers" if stack == "encoder" else "num_decoder_layers"
    depth = view.optional(name) or view.integer("num_layers")
    step = said if said is not None else depth // sparse if sparse else depth
    return step == 1 or (step > 1 and index % step == 1)


def idle_experts(view: ConfigView, layers: Layers) -> int:
    """All experts but one in Switch, and but two in NLLB-MoE."""
    visited = 2 if view.optional("encoder_ffn_dim") else 1
    idle = max(0, view.integer("num_experts") - visited)
    return sum(
        idle * expert(view, layer.stack)
        for layer in layers
        if is_sparse(view, layer.stack, layer.index)
    )


def experts_and_copies(view: ConfigView, layers: Layers) -> int:
    return embedding_copies(view, layers) + sparse_experts(view, layers)
