"""Configs of other tools that people hold: read as the config.json that says the same, or refused
by their name."""

from collections.abc import Iterable, Mapping
from typing import Any

from headcount.model.errors import UnsupportedModelError
from headcount.model.numbers import finite, whole

from .built_classes import type_of_class
from .size_names import NAMES, names_of

_CORE = ("hidden_size", "num_hidden_layers", "num_attention_heads")
_LLAMA_VOCABULARY = 32_000  # Llama 1 and 2 write -1: their tokenizer has so many words
_LARGEST_TIED = 3072  # Llama 3.2's two small models tie their head; params.json does not say it
# What Meta's params.json of Llama 1 to 3 holds, and what the code that reads it adds (llama-models,
# llama3/args.py). Its other models have experts, chunks or cross-attention under further keys.
_OF_LLAMA = frozenset(
    {
        *("dim", "n_layers", "n_heads", "n_kv_heads", "vocab_size", "multiple_of"),
        *("ffn_dim_multiplier", "norm_eps", "rope_theta", "use_scaled_rope", "max_batch_size"),
        *("max_seq_len", "model_parallel_size", "quantization_args", "lora_args"),
    }
)


def standard_config(config: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """`config` itself, or what it means where it is that of another tool.

    Raises UnsupportedModelError for one that is known and does not say enough."""
    refused = _refused(config)
    if refused is not None:
        raise UnsupportedModelError(f"{where}: this is {refused}")
    if isinstance(config.get("model_config"), dict) and not _names_sizes(config):
        return _mlc(config)
    if all(whole(config.get(key)) for key in ("dim", "n_layers", "n_groups")):
        return _mamba(config)
    layers = config.get("transformer_layer_config")
    if isinstance(layers, dict) and config.get("speculators_model_type"):
        return _speculator(config, layers)
    if config.get("model_type") or config.get("architectures"):
        return config
    if isinstance(config.get("ssm_cfg"), dict) and whole(config.get("d_model")):
        return _mamba_ssm(config, config["ssm_cfg"], where)
    if all(whole(config.get(key)) for key in ("dim", "n_layers", "n_heads")):
        return _params(config, where)
    if "experts_per_token" in config and "swiglu_limit" in config:
        return _gpt_oss(config)
    if "type_vocab_size" in config and all(whole(config.get(key)) for key in _CORE):
        return {
            **_of_class("Albert" if "embedding_size" in config else "Bert", "MaskedLM"),
            **config,
        }
    return config


# Names of other tools beside those of `size_names`.
_THEIRS = {
    **{"max_position_embeddings": "context_window_size", "intermediate_size": "hidden_dim"},
    **{"num_local_experts": "num_experts", "num_experts_per_tok": "experts_per_token"},
    **{"tie_word_embeddings": "tied_embeddings"},
}


def places(
    given: Mapping[str, Any], read: Mapping[str, Any], where: str
) -> dict[str, tuple[str, str]]:
    """Where the values of `read`, which was made of `given`, stand there, and under which key: for
    `--explain`. Empty where it is the same."""
    if read is given:
        return {}
    nested = {key: value for key, value in given.items() if isinstance(value, Mapping)}
    alike = {key: sum(read.get(k) == v for k, v in inner.items()) for key, inner in nested.items()}
    order = sorted(nested, key=lambda key: -alike[key])
    holders = ((where, given), *((f"{where}: {key}", nested[key]) for key in order))
    return {key: _place(holders, key, value) for key, value in read.items()}


def _place(
    holders: Iterable[tuple[str, Mapping[str, Any]]], key: str, value: Any
) -> tuple[str, str]:
    names = (*(names_of(key) if key in NAMES else (key,)), _THEIRS.get(key, key))
    for place, holder in holders:
        for name in names:
            if name in holder and holder[name] == value:
                return place, name
    return "derived: other keys of the file", ""


def _names_sizes(config: Mapping[str, Any]) -> bool:
    return any(config.get(name) is not None for key in _CORE for name in (key, *NAMES[key]))


def _refused(config: Mapping[str, Any]) -> str | None:
    model = config.get("model")
    if isinstance(model, dict) and isinstance(model.get("decoder"), dict):
        return (
            "a genai_config.json of ONNX Runtime, which gives heads and layers but no width of the"
            " feed-forward: audit the config.json that the model was made of"
        )
    adapted = _adapted(config)
    if adapted is not None:
        return f"the config of an adapter, and of no model: audit its base model ({adapted[:80]})"
    if "medusa_num_heads" in config:
        return (
            "the config of heads that draft for a model: they attend to nothing and keep no cache,"
            " so audit that model"
        )
    if isinstance(config.get("_class_name"), str) and "_diffusers_version" in config:
        return (
            f"a config of diffusers ({config['_class_name'][:80]}), no language model: audit the"
            f" config.json of a text encoder in its folder, as {_text_encoders(config)}"
        )
    return None


def _adapted(config: Mapping[str, Any]) -> str | None:
    """What the adapter_config.json of peft or of mlx-lm says it is for."""
    if isinstance(config.get("peft_type"), str):
        return str(config.get("base_model_name_or_path") or "not named")
    if "fine_tune_type" in config and "lora_parameters" in config:
        return str(config.get("model") or "not named")
    return None


def _text_encoders(config: Mapping[str, Any]) -> str:
    """Where a pipeline holds models of transformers, and their classes, as model_index.json lists
    them: `"text_encoder_2": ["transformers", "T5EncoderModel"]`."""
    listed = (
        (folder, value[1])
        for folder, value in config.items()
        if isinstance(value, list) and len(value) == 2 and value[0] == "transformers"
    )
    found = [
        f"{folder[:80]}/config.json ({name[:80]})"
        for folder, name in listed
        if isinstance(name, str) and type_of_class(name) is not None
    ]
    return " or ".join(found[:4]) or "text_encoder/config.json"


def _of_class(name: str, task: str = "CausalLM") -> dict[str, Any]:
    """The class of transformers that holds the model."""
    return {"architectures": [f"{name}For{task}"]}


def _mlc(config: Mapping[str, Any]) -> dict[str, Any]:
    """mlc-chat-config.json of MLC LLM: the sizes stand under `model_config`, and the name of the
    quantisation says what is computed in."""
    from .formats.mlc import mlc_dtype  # takes time to start, and few files need it

    inner = dict(config["model_config"])
    context = config.get("context_window_size")
    if whole(context) and "max_position_embeddings" not in inner:
        inner["max_position_embeddings"] = context
    return {"model_type": config.get("model_type"), "dtype": mlc_dtype(config), **inner}


def _params(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """params.json of Meta's Llama, whose MLP is 2/3 of 4 x dim, times a factor, rounded up; or of
    Mistral, which gives its width as `hidden_dim`."""
    from .unread.unread_keys import not_understood  # takes time to start, and few files need it

    for key, why in not_understood({**config, "sliding_window_size": None}):
        raise UnsupportedModelError(f"{where}: this params.json is not read: its {key} {why}")
    if any(isinstance(config.get(key), dict) for key in ("vision_encoder", "multimodal")):
        raise UnsupportedModelError(
            f"{where}: this params.json has a vision encoder, which is not counted here: audit the"
            " config.json of the same model"
        )
    if config.get("kv_lora_rank") is not None:
        raise UnsupportedModelError(
            f"{where}: this params.json has latent attention: audit the config.json of the same"
            " model"
        )
    further = set(config) - _OF_LLAMA if "hidden_dim" not in config else None
    if further:
        shown = ", ".join(sorted(key[:40] for key in further)[:4])
        raise UnsupportedModelError(
            f"{where}: this params.json is of a Llama that is not read from it ({shown}): audit the"
            " config.json of the same model"
        )
    sizes = {
        "hidden_size": config["dim"],
        "num_hidden_layers": config["n_layers"],
        "num_attention_heads": config["n_heads"],
        "num_key_value_heads": config.get("n_kv_heads") or config["n_heads"],
        "rms_norm_eps": config.get("norm_eps"),
        "max_position_embeddings": config.get("max_seq_len"),
    }
    return {**sizes, **(_mistral if "hidden_dim" in config else _meta)(config)}


def _meta(config: Mapping[str, Any]) -> dict[str, Any]:
    dim, factor = config["dim"], finite(config.get("ffn_dim_multiplier"))
    inner = int(2 * 4 * dim / 3)
    inner = inner if factor is None else int(factor * inner)
    step, vocab = whole(config.get("multiple_of")) or 256, whole(config.get("vocab_size"))
    return {
        **_of_class("Llama"),
        "intermediate_size": -(-inner // step) * step,
        "vocab_size": vocab if vocab and vocab > 0 else _LLAMA_VOCABULARY,
        "tie_word_embeddings": config.get("use_scaled_rope") is True and dim <= _LARGEST_TIED,
    }


def _mistral(config: Mapping[str, Any]) -> dict[str, Any]:
    moe = config.get("moe")
    experts = (
        {
            "num_local_experts": moe.get("num_experts"),
            "num_experts_per_tok": moe.get("num_experts_per_tok"),
        }
        if isinstance(moe, dict)
        else {}
    )
    return {
        **_of_class("Mixtral" if experts else "Mistral"),
        "intermediate_size": config["hidden_dim"],
        "head_dim": config.get("head_dim"),
        "vocab_size": config.get("vocab_size"),
        "sliding_window": config.get("sliding_window"),
        "tie_word_embeddings": config.get("tied_embeddings") is True,
        **experts,
    }


def _mamba(config: Mapping[str, Any]) -> dict[str, Any]:
    """params.json of Mistral's Mamba-Codestral, which says `mamba` and is a Mamba-2 with the sizes
    of state, kernel and heads that mamba_ssm has by default (mistral-inference, mamba.py)."""
    vocab, step = whole(config.get("vocab_size")), whole(config.get("pad_vocab_size_multiple")) or 1
    return {
        **_of_class("Mamba2"),
        "hidden_size": config["dim"],
        "num_hidden_layers": config["n_layers"],
        "n_groups": config["n_groups"],
        "state_size": 128,
        "conv_kernel": 4,
        "expand": 2,
        "head_dim": 64,
        "num_heads": 2 * config["dim"] // 64,
        "vocab_size": -(-vocab // step) * step if vocab else None,
        "tie_word_embeddings": config.get("tie_embeddings") is True,
    }


# ssm_cfg of mamba_ssm, by the names of transformers, with what it has by default.
_SSM: Mapping[str, tuple[str, int]] = {
    "d_state": ("state_size", 16),
    "d_conv": ("conv_kernel", 4),
    "expand": ("expand", 2),
}
_SSM_2 = {**_SSM, "d_state": ("state_size", 128), "headdim": ("head_dim", 64)}


def _mamba_ssm(config: Mapping[str, Any], ssm: Mapping[str, Any], where: str) -> dict[str, Any]:
    """config.json of state-spaces/mamba-2.8b and the like: mamba_ssm's MambaConfig, whose head is
    the embedding unless the file says otherwise.

    Raises UnsupportedModelError for layers beside those of state, or norms with a bias."""
    has_attention, has_mlp = config.get("attn_layer_idx"), config.get("d_intermediate")
    if has_attention or has_mlp or config.get("rms_norm") is False:
        raise UnsupportedModelError(
            f"{where}: this is a config of mamba_ssm with layers of attention or an MLP, or norms"
            " with a bias, which is not read here"
        )
    is_second = ssm.get("layer") == "Mamba2"
    vocab, step = whole(config.get("vocab_size")), whole(config.get("pad_vocab_size_multiple")) or 8
    sizes = {
        name: whole(ssm.get(key)) or otherwise
        for key, (name, otherwise) in (_SSM_2 if is_second else _SSM).items()
    }
    if is_second:
        sizes["n_groups"] = whole(ssm.get("ngroups")) or 1
        sizes["num_heads"] = sizes["expand"] * config["d_model"] // sizes["head_dim"]
    return {
        **_of_class("Mamba2" if is_second else "Mamba"),
        "hidden_size": config["d_model"],
        "num_hidden_layers": config.get("n_layer"),
        **sizes,
        "vocab_size": -(-vocab // step) * step if vocab else None,
        "tie_word_embeddings": config.get("tie_embeddings") is not False,
    }


def _speculator(config: Mapping[str, Any], layers: Mapping[str, Any]) -> dict[str, Any]:
    """config.json of a draft that the library speculators made: that of its layers is nested."""
    own = ("architectures", "dtype", "torch_dtype", "draft_vocab_size")
    return {**layers, **{key: config[key] for key in own if key in config}}


def _gpt_oss(config: Mapping[str, Any]) -> dict[str, Any]:
    """`original/config.json` of gpt-oss."""
    start = whole(config.get("initial_context_length"))
    factor = finite(config.get("rope_scaling_factor"))
    length = int(start * factor) if start and factor else None
    return {
        **_of_class("GptOss"),
        **config,
        "num_local_experts": config.get("num_experts"),
        "num_experts_per_tok": config["experts_per_token"],
        "max_position_embeddings": length,
        "tie_word_embeddings": False,
    }
