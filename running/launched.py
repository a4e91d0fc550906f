"""Whether a launcher (torchrun, accelerate launch) has started this process beside others."""

import os

_SAID = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def is_launched() -> bool:
    """True where there are several, by the variables that torch.distributed reads."""
    if any(name not in os.environ for name in _SAID):
        return False
    count = os.environ["WORLD_SIZE"]
    return count.isdecimal() and int(count) > 1
