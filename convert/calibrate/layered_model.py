"""The source's own class with the weights of one layer at a time, and what its layers are given."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, cast

import torch
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from transformers import PreTrainedModel
from transformers.core_model_loading import convert_and_load_state_dict_in_model
from transformers.initialization import no_init_weights
from transformers.modeling_utils import LoadStateDictConfig

from headcount.model.errors import InvalidWeightsError, UnsupportedModelError
from headcount.running.boundary import quiet_transformers, third_party
from headcount.running.built.built_layers import layer_list, stacks_of
from headcount.running.load import auto_class
from headcount.running.runnable import RunnableModel, open_runnable

from ..plan.errors import CannotConvertError
from ..plan.source import ConversionSource
from ..stream.reader import DTYPES, SourceReader
from .class_names import ClassNames
from .placed import CPU

Stack = Literal["encoder", "decoder"]


class LayeredModel:
    """A model whose parameters have no values but where they are loaded: a causal one or, where the
    `stack` whose layers are to run is named, an encoder-decoder. What has values has them on
    `device`."""

    def __init__(
        self,
        source: ConversionSource,
        reader: SourceReader,
        *,
        stack: Stack | None = None,
        device: torch.device = CPU,
    ) -> None:
        if stack is None:
            refuse_encoder_decoder(source)
        folder = str(source.real[0])
        self.runnable: RunnableModel = open_runnable(folder, encoder_decoders=stack is not None)
        self.source, self._reader, self.device = source, reader, device
        wide = any(t.dtype == "F64" for t in source.checkpoint.tensors.values())
        self.dtype = torch.float64 if wide else torch.float32
        with third_party(f"{source.folder}: transformers cannot build it"):
            self.model = _skeleton(self.runnable, self.dtype, device)
            stacks = {name: layer_list(one) for name, one in stacks_of(self.model)}
            self.layers = stacks[stack or "decoder"]
        self._names, self._tied = ClassNames(self.model), len(stacks) > 1
        paths = {module: path for path, module in self.model.named_modules()}
        self._prefix = paths[self.layers]
        # What begins so belongs to a layer, of this stack or of another.
        self._of_layers = tuple(f"{paths[layers]}." for layers in stacks.values())
        found = {name: self._names.of(name) for name in source.checkpoint.tensors}
        self._inside = {name: inside for name, (inside, _) in found.items()}
        self._plain = {name for name, (_, converted) in found.items() if not converted}

    @property
    def hidden_size(self) -> int:
        """The width of the hidden states."""
        width: int = self.runnable.config.get_text_config().hidden_size
        return width

    def read(self, name: str) -> torch.Tensor:
        """The values of a tensor of the source's files, in the dtype that is computed in."""
        values = self._reader.tensor(self.source.checkpoint.tensors[name])
        return values.to(self.device, self.dtype)

    def inside(self, name: str) -> str:
        """Where the class keeps the tensor `name` of the files. Raises CannotConvertError where it
        keeps something else that is computed from it."""
        if name not in self._plain:
            raise CannotConvertError(
                f"{self.source.folder}: {name!r} is not what its class computes with (transformers"
                " converts it on loading): use --method merge without --calibration"
            )
        return self._inside[name]

    def on_disk(self, inside: str) -> str | None:
        """The tensor of the files that the class keeps at `inside` as it is, if there is one."""
        found = [n for n, path in self._inside.items() if path == inside and n in self._plain]
        return found[0] if len(found) == 1 else None

    def path_of(self, index: int) -> str:
        """What the names of layer `index` begin with inside the class."""
        return f"{self._prefix}.{index}."

    @contextmanager
    def layer(self, index: int) -> Iterator[nn.Module]:
        """Layer `index` with its weights, which are gone afterwards."""
        layer, prefix = self.layers[index], self.path_of(index)
        names = [name for name, inside in self._inside.items() if inside.startswith(prefix)]
        with self._loaded(names, layer, layer.modules()):
            yield layer

    @contextmanager
    def embeddings(self) -> Iterator[PreTrainedModel]:
        """The model with all weights but those of its layers and its output head."""
        head = self.model.get_output_embeddings()
        own = [f"{name}." for name, m in self.model.named_modules() if m is head]
        embeddings = self.model.get_input_embeddings()
        with self._loaded(self._outside(*own), embeddings, self.model.modules()):
            if self._tied:
                self.model.tie_weights(missing_keys=self._without_values())
            yield self.model

    @contextmanager
    def around(self) -> Iterator[PreTrainedModel]:
        """The model with all weights but those of its layers, which are left as they are."""
        inside = set(self.layers.modules())
        outside = [module for module in self.model.modules() if module not in inside]
        with self._loaded(self._outside(), self.model.get_input_embeddings(), outside):
            self.model.tie_weights(missing_keys=self._without_values())
            lost = sorted(self._without_values())
            if lost:
                raise InvalidWeightsError(f"{self.source.folder}: the weights lack {lost[0]!r}")
            yield self.model

    def _without_values(self) -> set[str]:
        """The parameters that belong to no layer and have no values."""
        named = self.model.named_parameters(remove_duplicate=False)
        return {n for n, value in named if value.is_meta and not n.startswith(self._of_layers)}

    def _outside(self, *left_out: str) -> list[str]:
        """The tensors of the files that belong to no layer, but for those of modules `left_out`."""
        inside_of = (*self._of_layers, *left_out)
        return [
            name
            for name, inside in self._inside.items()
            if not inside.startswith(inside_of) and self._names.is_kept(inside)
        ]

    @contextmanager
    def _loaded(
        self, names: Iterable[str], checked: nn.Module, forgotten: Iterable[nn.Module]
    ) -> Iterator[None]:
        tensors = {name: self.read(name) for name in names if self._is_float(name)}
        config = LoadStateDictConfig(
            dtype=self.dtype,
            weight_mapping=cast(Any, self._names.mapping),
            device_map={"": self.device},
        )
        with quiet_transformers(), third_party(f"{self.source.folder}: transformers cannot use it"):
            convert_and_load_state_dict_in_model(self.model, tensors, config)
        del tensors
        self.model.requires_grad_(False)
        lost = [name for name, value in checked.named_parameters() if value.is_meta]
        if lost:
            raise InvalidWeightsError(f"{self.source.folder}: the weights lack {lost[0]!r}")
        try:
            yield
        finally:
            for module in forgotten:
                _forget(module)

    def _is_float(self, name: str) -> bool:
        return self.source.checkpoint.tensors[name].dtype in DTYPES


def refuse_encoder_decoder(source: ConversionSource) -> None:
    """Raises UnsupportedModelError unless all layers of the language model are one decoder's."""
    stacks = {layer.stack for layer in source.audit.spec.layers}
    if source.config.get("is_encoder_decoder") or stacks != {"decoder"}:
        raise UnsupportedModelError(
            f"{source.folder}: {source.audit.spec.model_type} is no plain decoder, and only such"
            " can be calibrated: use --method merge without --calibration"
        )


def assign(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """Gives parameters of `module`, by their paths in it, other values of the same shape."""
    for path, value in tensors.items():
        owner, _, name = path.rpartition(".")
        holder = module.get_submodule(owner)
        if holder.get_parameter(name).shape != value.shape:
            raise CannotConvertError(f"{path}: the class keeps another shape than the files have")
        holder._parameters[name] = nn.Parameter(value.detach(), requires_grad=False)


@contextmanager
def assigned(module: nn.Module, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
    """`module` with other values in some parameters, for as long as the context lasts."""
    old = {path: module.get_parameter(path).detach() for path in tensors}
    try:
        assign(module, {path: tensors[path].to(value) for path, value in old.items()})
        yield
    finally:
        assign(module, old)


def _forget(module: nn.Module) -> None:
    for name, value in module._parameters.items():
        if value is not None and not value.is_meta:
            module._parameters[name] = nn.Parameter(value.to("meta"), requires_grad=False)


def _skeleton(runnable: RunnableModel, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    """The model in evaluation mode: parameters without values, buffers with theirs."""
    with ExitStack() as stack:
        stack.enter_context(quiet_transformers())
        stack.enter_context(no_init_weights())
        stack.enter_context(_parameters_without_values())
        model: Any = auto_class(runnable.config).from_config(
            runnable.config, dtype=dtype, attn_implementation="eager", trust_remote_code=False
        )
    model.eval().requires_grad_(False)
    for module in model.modules():
        for name, value in module._buffers.items():
            if value is not None:
                module._buffers[name] = value.to(device)
    return model  # type: ignore[no-any-return]


@contextmanager
def _parameters_without_values() -> Iterator[None]:
    """Modules made inside get their parameters on the meta device, so that building costs nothing;
    buffers, which no file has, are computed."""

    def on_meta(_module: nn.Module, _name: str, value: nn.Parameter) -> Any:  # a new parameter
        return nn.Parameter(value.to("meta"), value.requires_grad)

    handle = register_module_parameter_registration_hook(on_meta)
    try:
        yield
    finally:
        handle.remove()
