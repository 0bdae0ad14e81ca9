"""Names and order of the tensors that a file takes and gives."""

from __future__ import annotations

import pytest
import torch

from rbprune.errors import ExportError
from rbprune.export.program import make_program
from rbprune.export.signature import Signature, batch_size, pieces, with_batch
from rbprune.utils.inputs import Arguments
from tests.export.small import Named


def test_inputs_and_outputs_keep_their_names() -> None:
    given = Arguments((torch.ones(4, 2),), {"mask": torch.ones(4, 1)})
    signature = make_program(Named(), given).signature
    assert signature == Signature(("image", "mask"), ("out", "image_output"), ("mask",))


def test_named_inputs_are_taken_in_the_order_of_the_file() -> None:
    signature = Signature(("a", "b"), ("output",), ("a", "b"))
    first, second = torch.zeros(1), torch.ones(1)
    assert signature.tensors({"b": second, "a": first}) == [first, second]
    with pytest.raises(ExportError, match=r"exported with the inputs \['a', 'b'\]; got \['a'\]"):
        signature.tensors({"a": first})


def test_every_tensor_with_rows_for_the_examples_gets_as_many_rows() -> None:
    given = with_batch((torch.arange(4), torch.arange(3), "flag"), 6).args
    assert (given[0].tolist(), given[1].tolist(), given[2]) == ([0, 1, 2, 3, 0, 1], [0, 1, 2], "flag")


def test_pieces_are_whole_and_say_how_much_counts() -> None:
    found = [(piece.args[0].tolist(), count) for piece, count in pieces(torch.arange(5), 2)]
    assert found == [([0, 1], 2), ([2, 3], 2), ([4, 0], 1)]


def test_inputs_without_a_batch_are_named() -> None:
    with pytest.raises(ExportError, match="no tensor with a batch dimension"):
        batch_size((torch.tensor(1.0), "flag"))
