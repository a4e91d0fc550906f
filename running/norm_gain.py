"""What a norm multiplies the stream by and adds to it, however its class writes that."""

from torch import Tensor, nn


def gain_and_shift(norm: nn.Module) -> tuple[Tensor, Tensor] | None:
    """[D] each, as the norm gives them: numbers of 1 and -1 in turn have a mean of 0 and a square
    of 1. None where it has no weight of one dimension, or an odd width."""
    weight = next(iter(norm.parameters()), None)
    if weight is None or weight.dim() != 1 or len(weight) % 2:
        return None
    probe = weight.new_ones(len(weight))
    probe[1::2] = -1
    up, down = norm(probe[None, None])[0, 0], norm(-probe[None, None])[0, 0]
    return (up - down) / 2 * probe, (up + down) / 2
