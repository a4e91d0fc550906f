"""Encoder-decoders."""

from dataclasses import replace

from ...body.body import Body, lm_head, no_head
from ...body.feed_forward import Mlp
from ...body.towers import TwoTowers
from ...encoder_decoders.two_models import TwoModels
from .. import seq2seq_bodies as extras
from ..bodies import BART, SANDWICH, SEQ2SEQ_CLASSES, T5

ANY = replace(BART, classes={**SEQ2SEQ_CLASSES, "Model": no_head})
PRE_NORMED = replace(ANY, embedding_norms=0, final_norms=2, position_offset=0)
UNPLACED = replace(PRE_NORMED, positions=())  # sinusoidal positions

ROWS: dict[str, Body | TwoTowers | TwoModels] = {
    "mvp": replace(ANY, extra=extras.mvp),
    "plbart": ANY,
    "mbart": replace(ANY, final_norms=2),
    "blenderbot-small": replace(ANY, position_offset=0),
    **dict.fromkeys(("blenderbot", "pegasus"), PRE_NORMED),
    "bigbird_pegasus": replace(ANY, position_offset=0),
    "led": replace(
        ANY,
        positions=("max_encoder_position_embeddings", "max_decoder_position_embeddings"),
        position_offset=0,
    ),
    "m2m_100": UNPLACED,
    "nllb-moe": replace(UNPLACED, extra=extras.with_copies, idle_extra=extras.idle_experts),
    "pegasus_x": replace(UNPLACED, extra=extras.pegasus_x),
    "speech_to_text": replace(UNPLACED, extra=extras.speech_to_text),
    "marian": replace(
        PRE_NORMED,
        final_norms=0,
        extra=extras.marian,
        classes={"MTModel": lm_head, "MarianModel": no_head},
    ),
    "prophetnet": replace(ANY, position_offset=0, extra=extras.prophetnet),
    **{
        name: TwoModels(classes={f"{kind}Model": no_head})
        for name, kind in (
            ("encoder-decoder", "EncoderDecoder"),
            ("vision-encoder-decoder", "VisionEncoderDecoder"),
        )
    },
    "t5gemma": TwoTowers(
        bodies={"encoder": SANDWICH, "decoder": replace(SANDWICH, norms=6)},
        classes={**SEQ2SEQ_CLASSES, "T5GemmaModel": no_head},
        constants=0,
        projection=None,
        key="{stack}",
    ),
    # As T5
    **{
        name: replace(T5, classes={**SEQ2SEQ_CLASSES, base: no_head})
        for name, base in (("umt5", "UMT5Model"), ("longt5", "LongT5Model"))
    },
    "switch_transformers": replace(
        T5,
        mlp=Mlp(width="d_ff", gated=False),
        extra=extras.with_copies,
        idle_extra=extras.idle_experts,
        classes={**SEQ2SEQ_CLASSES, "SwitchTransformersModel": no_head},
    ),
}
