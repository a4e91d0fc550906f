"""What encoder-decoders hold beside the common shape: callables of body_rows.encoder_decoders."""

from ..body.body import Layers
from ..body.feed_forward import matrices
from ..config_view import ConfigView
from .extras import bart_copies


def marian(view: ConfigView, layers: Layers) -> int:
    """The decoder's vocabulary, where it is another one, has an embedding of its own."""
    if view.flag("share_encoder_decoder_embeddings"):
        return bart_copies(view, layers)
    hidden = view.integer("hidden_size")
    own = view.optional("decoder_vocab_size") or view.integer("vocab_size")
    return own * hidden


def pegasus_x(view: ConfigView, layers: Layers) -> int:
    """Global tokens that all local blocks attend to, with a norm of their own in each layer."""
    norms = 2 * sum(layer.stack == "encoder" for layer in layers)
    rows = view.integer("num_global_tokens") + norms
    return bart_copies(view, layers) + rows * view.integer("hidden_size")


def mvp(view: ConfigView, layers: Layers) -> int:
    """With `use_prompt` prompts for both attentions of the decoder, each an embedding and two
    matrices that make keys and values of all layers from it. The encoder that transformers builds
    has none."""
    if not view.flag("use_prompt"):
        return bart_copies(view, layers)
    hidden, middle = view.integer("hidden_size"), view.integer("prompt_mid_dim")
    each = view.integer("prompt_length") * hidden + (hidden + 1) * middle
    made = (middle + 1) * 2 * view.integer("decoder_layers") * hidden
    return bart_copies(view, layers) + 2 * (each + made)


def prophetnet(view: ConfigView, layers: Layers) -> int:
    """One vector for each stream of the n-grams that it predicts."""
    return bart_copies(view, layers) + view.integer("ngram") * view.integer("hidden_size")


def sparse_experts(view: ConfigView, layers: Layers) -> int:
    """NLLB-MoE and Switch: in every n-th layer of a stack plain experts in place of the MLP, which
    is taken away here, and their router."""
    hidden, count = view.integer("hidden_size"), view.integer("num_experts")
    biased = view.get("router_bias") is True
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
    said = view.config.get(f"{stack}_sparse_step")
    sparse = view.optional(f"num_sparse_{stack}_layers", minimum=0)
    if sparse is None:
        step = view.integer(f"{stack}_sparse_step", minimum=0)
        return step > 0 and (index + 1) % step == 0
    name = "num_layers" if stack == "encoder" else "num_decoder_layers"
    depth = view.optional(name) or view.integer("num_layers")
    step = said if type(said) is int else depth // sparse if sparse else depth
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


def with_copies(view: ConfigView, layers: Layers) -> int:
    return bart_copies(view, layers) + sparse_experts(view, layers)


def speech_to_text(view: ConfigView, layers: Layers) -> int:
    """Convolutions over the spectrogram, each with a gated linear unit behind it."""
    hidden, channels = view.integer("hidden_size"), view.integer("conv_channels")
    inputs = view.integer("input_feat_per_channel") * view.integer("input_channels")
    total, kernels = 0, view.integers("conv_kernel_sizes") or ()
    for index, kernel in enumerate(kernels):
        out = 2 * hidden if index == len(kernels) - 1 else channels
        total += out * (inputs * kernel + 1)
        inputs = out // 2
    return total
