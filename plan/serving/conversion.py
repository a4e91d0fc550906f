"""What fewer K/V heads, or a latent as of MLA, would buy on the engine."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from headcount.model.mixers import Attention, LatentAttention, Mixer
from headcount.model.spec import ModelSpec

from .changes import converted
from .planning import ServingPlan, plan_serving

LATENTS = (512, 256)  # kv_lora_rank: that of DeepSeek-V2 and V3, and half of it
ROTATED = 64  # qk_rope_head_dim


@dataclass(frozen=True, kw_only=True, slots=True)
class Bought:
    """`copies`: how many ranks store the same K/V head, or latent; `waste_bytes` of all ranks'
    cache memory hold such copies. The weights of a latent are taken for those of the model."""

    name: str
    num_key_value_heads: int | None
    is_current: bool
    plan: ServingPlan
    copies: int

    @property
    def waste_bytes(self) -> int:
        ranks = self.plan.request.tp
        whole = max(0, self.plan.available_bytes) * ranks
        return whole - whole // self.copies

    def document(self) -> dict[str, object]:
        return {
            "name": self.name,
            "num_key_value_heads": self.num_key_value_heads,
            "current": self.is_current,
            "bytes_per_token": self.plan.pool.bytes_per_token,
            "kv_tokens": self.plan.kv_tokens,
            "concurrency": round(self.plan.concurrency, 2),
            "max_context": self.plan.max_context,
            "fits": self.plan.fits,
            "kv_copies": self.copies,
            "replicated_kv_bytes": self.waste_bytes,
        }


def bought(plan: ServingPlan) -> tuple[Bought, ...]:
    """The model as it is, with n/2, n/4, ..., 1 K/V heads, and with latents; () where it has no
    K/V heads of one number."""
    heads = _present(plan.subject.spec)
    if heads is None:
        return ()
    tp = plan.request.tp
    rows = [_row(f"{heads} K/V heads", heads, plan, tp, is_current=True)]
    for count, subject in converted(plan.subject, tp):
        rows.append(_row(f"{count} K/V heads", count, plan_serving(subject, plan.request), tp))
    return (*rows, *_latents(plan, rows[0].plan))


def _row(name: str, heads: int, plan: ServingPlan, tp: int, *, is_current: bool = False) -> Bought:
    return Bought(
        name=name,
        num_key_value_heads=heads,
        is_current=is_current,
        plan=plan,
        copies=max(1, tp // heads),
    )


def _present(spec: ModelSpec) -> int | None:
    mixers = [m for layer in spec.layers for m in layer.mixers]
    if any(isinstance(mixer, LatentAttention) for mixer in mixers):
        return None
    counts = {m.num_key_value_heads for m in mixers if isinstance(m, Attention) and m.cached}
    return counts.pop() if len(counts) == 1 else None


def _latents(plan: ServingPlan, current: ServingPlan) -> Iterator[Bought]:
    """Only where a latent is smaller, and the memory that is left stays what it is."""
    tp = plan.request.tp
    request = replace(plan.request, kv_memory=max(0, plan.available_bytes))
    for rank in LATENTS:
        spec = _with_latent(plan.subject.spec, rank)
        changed = plan_serving(replace(plan.subject, spec=spec), request)
        if changed.pool.bytes_per_token < current.pool.bytes_per_token:
            yield Bought(
                name=f"MLA, latent of {rank} + {ROTATED}",
                num_key_value_heads=None,
                is_current=False,
                plan=changed,
                copies=tp,
            )


def _with_latent(spec: ModelSpec, rank: int) -> ModelSpec:
    layers = tuple(
        replace(layer, mixers=tuple(_latent(mixer, rank) for mixer in layer.mixers))
        for layer in spec.layers
    )
    return replace(spec, layers=layers)


def _latent(mixer: Mixer, rank: int) -> Mixer:
    if type(mixer) is not Attention or not mixer.cached or not mixer.has_key_value:
        return mixer
    return LatentAttention(
        hidden_size=mixer.hidden_size,
        num_attention_heads=mixer.num_attention_heads,
        q_lora_rank=None,
        kv_lora_rank=rank,
        qk_nope_head_dim=mixer.head_dim,
        qk_rope_head_dim=ROTATED,
        v_head_dim=mixer.v_head_dim,
        window=mixer.window,
    )
