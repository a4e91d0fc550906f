"""Rows: nothing is lost, nothing is in both parts, and any process can tell what a step reads."""

from typing import Any

import pytest

from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert
END = 1_000_000


def ids(count: int) -> Any:
    import torch

    return torch.arange(count)


def test_rows_hold_the_text_in_its_order_and_predict_every_token_once() -> None:
    import torch

    from headcount.uptrain.rows import all_of
    from headcount.uptrain.text_rows import pack_rows

    rows = pack_rows([ids(1000)], sequence_length=10, held_out=50, end=None)
    predicted = rows.train.reading(all_of(rows.train)).targets.flatten().tolist()
    assert predicted == list(range(1, 941))  # 950 tokens, of which the last nine fill no row
    assert rows.held_out.reading(all_of(rows.held_out)).targets.flatten().tolist() == list(
        range(951, 991)
    )
    cut = rows.train.ids
    assert (cut[1:, 0] == cut[:-1, -1]).all()
    read = rows.train.reading(torch.tensor([3, 1]))
    assert read.inputs["input_ids"].tolist() == [[*range(30, 40)], [*range(10, 20)]]
    assert rows.train.tokens(torch.tensor([3, 1])) == 20


def test_every_text_gives_its_end_to_the_part_that_is_held_out() -> None:
    from headcount.uptrain.text_rows import pack_rows

    texts = [ids(300), 1000 + ids(300)]
    rows = pack_rows(texts, sequence_length=8, held_out=10_000, end=END)
    trained, held = ({*part.ids.flatten().tolist()} for part in (rows.train, rows.held_out))
    assert trained & held == {END}
    assert trained - {END} <= {*range(270), *range(1000, 1270)}
    assert held - {END} <= {*range(270, 300), *range(1270, 1300)}
    assert min(held) == 270  # a tenth, however much was asked for
    assert {*range(270)} <= trained


@pytest.mark.parametrize(("tokens", "length"), [(5, 10), (100, 10), (0, 1)])
def test_a_text_that_fills_no_row_is_refused(tokens: int, length: int) -> None:
    from headcount.uptrain.text_rows import pack_rows

    with pytest.raises(HeadcountError, match="more text, or a smaller --sequence-length"):
        pack_rows([ids(tokens)], sequence_length=length, held_out=3, end=None)


def test_a_pass_reads_every_row_once_in_an_order_that_the_seed_gives() -> None:
    from headcount.uptrain.rows import batch_rows

    def read(seed: int, steps: range) -> list[int]:
        return [
            row
            for step in steps
            for row in batch_rows(step, rows=23, batch_size=5, seed=seed).tolist()
        ]

    passes = [read(0, range(4 * i, 4 * i + 4)) for i in range(3)]
    assert all(len(set(one)) == 20 and set(one) <= {*range(23)} for one in passes)
    assert passes[0] != passes[1] != passes[2]
    assert passes[0] == read(0, range(4))
    assert passes[0] != read(1, range(4))
    assert any(set(one) != set(passes[0]) for one in passes)  # others are left out each time
