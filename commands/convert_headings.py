"""What the options of `convert` are about, as its help groups them."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from .grouped_help import GroupedCommand


class ConvertCommand(GroupedCommand):
    """Most of its options are of one piece of its work."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {
        "What is made": (
            *("num_key_value_heads", "pruned_heads", "across_layers", "latent", "cache_budget"),
            *("home", "dtype", "formats"),
        ),
        "How it is made": (
            *("quality", "method", "grouping", "temperature", "refit", "reconstruct", "seed"),
        ),
        "The text that it is fitted to": (
            *("calibration", "calibration_tokens", "calibration_row_tokens"),
            "calibration_device",
        ),
        "How it is read and written": (
            *("allow_pickle", "merge_adapter", "max_shard_size", "workers", "overwrite", "dry_run"),
        ),
        "What comes after it": ("checks", "evaluates"),
        "Several conversions, compared": ("counts", "methods", "budget", "by_layer"),
        "In place of a conversion": ("families", "verified", "sample"),
        "Of --evaluate and --sweep": (
            *("text", "pairs", "documents", "max_tokens", "window", "stride", "tokenizer"),
            *("device", "behaviour", "roles", "speed"),
        ),
        "The report, and this help": ("output", "wide", "color", "details"),
    }
