"""Python reads this as it starts: torchvision can then be imported by what vLLM starts, too."""

import torchvision_operators  # noqa: F401
