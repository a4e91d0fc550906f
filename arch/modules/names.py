"""What the matrices of a model are called, as data: of feed-forwards, and of further layers."""

from typing import NamedTuple


class FeedForwardNames(NamedTuple):
    """Paths inside a layer. `leaves` are gate, up and down of an MLP, `expert_leaves` those of an
    expert, which stands under its number below `experts`."""

    mlp: str = "mlp"
    experts: str = "mlp.experts"
    shared: str = "mlp.shared_experts"
    router: str = "mlp.gate"
    leaves: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")
    expert_leaves: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj")


STANDARD = FeedForwardNames()
# Qwen's experts; gpt-oss; Llama 4; Nemotron-H; Gemma 4; DeepSeek-V4.
ONE_SHARED_EXPERT = FeedForwardNames(shared="mlp.shared_expert")
ROUTER = FeedForwardNames(router="mlp.router")
LLAMA4 = FeedForwardNames(
    mlp="feed_forward",
    experts="feed_forward.experts",
    shared="feed_forward.shared_expert",
    router="feed_forward.router",
)
ALL_MIXERS = FeedForwardNames(
    mlp="mixer", experts="mixer.experts", shared="mixer.shared_experts", router="mixer.gate"
)
BESIDE_MLP = FeedForwardNames(experts="experts", router="router.proj")
FFN = FeedForwardNames(
    mlp="ffn",
    experts="ffn.experts",
    shared="ffn.shared_experts",
    router="ffn.gate",
    leaves=("w1", "w3", "w2"),
    expert_leaves=("w1", "w3", "w2"),
)
# Mixtral and MiniMax.
BLOCK_SPARSE = FeedForwardNames(
    experts="block_sparse_moe.experts",
    shared="block_sparse_moe.shared_experts",
    router="block_sparse_moe.gate",
    expert_leaves=("w1", "w3", "w2"),
)


class Prediction(NamedTuple):
    """`key` counts the layers, which stand as `name` in files, `#` for the number after the model's
    own layers; a config without it has `otherwise`. `copies`: each has an embedding and a head of
    its own in the files. `joins`: square matrices that join a token's embedding and the hidden
    state."""

    key: str
    name: str
    copies: bool = False
    joins: int = 2
    otherwise: int = 0


DEEPSEEK_PREDICTION = Prediction(key="num_nextn_predict_layers", name="layers.#", copies=True)
MTP_PREDICTION = Prediction(key="num_nextn_predict_layers", name="mtp.layers.0")
# Published configs of Qwen3-Next do not name theirs (Qwen3NextMultiTokenPredictor of vLLM).
QWEN3_NEXT_PREDICTION = MTP_PREDICTION._replace(otherwise=1)
QWEN_PREDICTION = MTP_PREDICTION._replace(key="mtp_num_hidden_layers")
