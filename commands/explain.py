"""`explain`: what heads, K/V heads and the cache are, with a model's own numbers."""

from pathlib import Path

import click

from headcount.audit.topics import QUESTIONS

from .console import Command, write_reports
from .options.completion import complete_model
from .options.shared import output_options


@click.command(cls=Command)
@click.argument(
    "topic",
    required=False,
    type=click.Choice([*QUESTIONS], case_sensitive=False),
    metavar="[TOPIC]",
)
@click.argument("model", required=False, metavar="[MODEL]", shell_complete=complete_model)
@output_options
def explain(topic: str | None, model: str | None, form: str, output: Path | None) -> None:
    """Explain TOPIC with the numbers of MODEL: mha, w_o, head_dim, cache, gqa, group, mqa, mla…

    Without TOPIC the topics are listed. MODEL is what `audit` takes, by default one that has
    what the topic is about; its config and headers are read, never weights.

    \b
    Example:
      headcount explain gqa llama-3-8b
      headcount explain mla deepseek-v3 --format markdown
    """
    from headcount.library.explanations import explain as explained

    write_reports([explained(topic, model).report], form, output)
