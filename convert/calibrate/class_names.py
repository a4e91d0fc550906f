"""Where a class of transformers keeps the tensors of the files."""

from torch import nn
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key


class ClassNames:
    """The names of `model`'s own modules for those of its files."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.mapping = get_model_conversion_mapping(model)
        self._base = model.base_model_prefix
        self._state = model.state_dict()
        self._renamings = [one for one in self.mapping if isinstance(one, WeightRenaming)]
        self._converters = [one for one in self.mapping if isinstance(one, WeightConverter)]

    def is_kept(self, inside: str) -> bool:
        """Whether the class has a tensor of this name."""
        return inside in self._state

    def of(self, name: str) -> tuple[str, bool]:
        """The name in the class of the tensor `name` of the files, and whether it is computed from
        that one in another way than by its name."""
        inside, pattern = rename_source_key(
            name, self._renamings, self._converters, self._base, self._state
        )
        return inside, pattern is not None

    def module_of(self, model: nn.Module, name: str) -> nn.Module | None:
        """The module of `model` that holds the tensor `name` of the files as it is, if one does."""
        inside, is_computed = self.of(name)
        if is_computed or not self.is_kept(inside):
            return None
        return model.get_submodule(inside.rpartition(".")[0])
