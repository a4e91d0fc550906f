"""Declares two operators of torchvision, where its compiled ones were made for another torch: it
could not be imported else. Nothing here calls them. Imported before vllm and transformers."""

import torch

LIBRARY = torch.library.Library("torchvision", "FRAGMENT")  # unregistered with the object
try:
    import torchvision  # noqa: F401
except RuntimeError:
    for name in ("nms", "qnms"):
        LIBRARY.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
except ImportError:
    pass  # there is no torchvision, and none is asked for
