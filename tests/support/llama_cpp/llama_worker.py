"""What llama.cpp says of its buffers: models made of key-values alone, loaded and started.

    python llama_worker.py < JOBS > ANSWERS      in an environment with llama-cpp-python and gguf

A job is a JSON line: `name`, `metadata`, and `runs`, each of them settings of a start. llama.cpp
makes a model of the key-values, which tells its tensors; they are written to a GGUF file of zeros,
and that is loaded and started as each run says. An answer is the job with its `tensors` and, for
each run, the `buffers` that were printed, in MiB, or `refused` with llama.cpp's words.

A run with `layers` (-ngl) has a device: an RPC server of this machine, whose buffers llama.cpp
places, and sizes, as those of a GPU. A job that is `virtual` is started without memory
(`no_alloc`), so that it can be of any size; its model buffers have no size then.

Each job runs in a process of its own, since llama.cpp aborts on what it did not expect.
"""

import ctypes
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gguf

import llama_cpp
from llama_cpp import llama_cpp as api

os.environ["GGML_NO_BACKTRACE"] = "1"  # of what llama.cpp aborts on, by a debugger: seconds each
PORT = 50_000 + os.getpid() % 10_000
ENDPOINT = f"127.0.0.1:{PORT}".encode()
LIBRARY = api._lib  # the binding has no function for a model that is made of key-values
TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}
EXPERTS = rb"\.ffn_(up|down|gate|gate_up)_(ch|)exps"
_BUFFER = re.compile(
    r"(\S+) +(model|KV|RS|compute|output|DSV4 [a-z]+ state) +buffer size = +([0-9.]+) MiB"
)
# const std::vector<std::pair<std::string, ggml_tensor *>> & of a model (src/llama-ext.h)
TENSORS, PAIR = "_Z29llama_internal_get_tensor_mapB5cxx11PK11llama_model", 40


class Tensor(ctypes.Structure):
    """The first fields of a ggml_tensor (ggml/include/ggml.h)."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
    )


SETTER = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class Override(ctypes.Structure):
    """llama_model_tensor_buft_override."""

    _fields_ = (("pattern", ctypes.c_char_p), ("type", ctypes.c_void_p))


def _prototypes() -> None:
    for name, result, arguments in (
        ("llama_model_init_from_user", ctypes.c_void_p, None),
        ("gguf_init_from_file", ctypes.c_void_p, None),
        ("ggml_get_name", ctypes.c_char_p, [ctypes.c_void_p]),
        ("ggml_backend_rpc_add_server", ctypes.c_void_p, [ctypes.c_char_p]),
        ("ggml_backend_register", None, [ctypes.c_void_p]),
        ("ggml_backend_dev_by_type", ctypes.c_void_p, [ctypes.c_int]),
        ("ggml_backend_reg_dev_get", ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_size_t]),
        ("ggml_backend_cpu_buffer_type", ctypes.c_void_p, []),
        ("ggml_backend_rpc_start_server", None, None),
    ):
        found = function(name)
        found.restype = result
        if arguments is not None:
            found.argtypes = arguments


@cache
def function(name: str) -> Any:
    """A function of llama.cpp's or of ggml's libraries, which lie beside it."""
    for library in (LIBRARY, *_others()):
        try:
            return getattr(library, name)
        except AttributeError:
            continue
    raise LookupError(f"{name} is in no library of llama-cpp-python {llama_cpp.__version__}")


def _others() -> Iterator[ctypes.CDLL]:
    folder = Path(llama_cpp.__file__).parent / "lib"
    for path in sorted(folder.glob("libggml*.so")):
        yield ctypes.CDLL(str(path))


def main() -> None:
    jobs = [json.loads(line) for line in sys.stdin]
    server = os.fork()
    if server == 0:
        _serve()
    time.sleep(0.5)
    try:
        for job in jobs:
            print(json.dumps(answered(job)), flush=True)
    finally:
        os.kill(server, 9)
        os.waitpid(server, 0)


def _serve() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
    _prototypes()
    cpu = (ctypes.c_void_p * 1)(function("ggml_backend_dev_by_type")(0))
    start = function("ggml_backend_rpc_start_server")
    start.argtypes = [ctypes.c_char_p, ctypes.c_char_p, *[ctypes.c_size_t] * 2, ctypes.c_void_p]
    start(ENDPOINT, None, 1, 1, cpu)
    os._exit(0)


def answered(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job with its answers. Where a process dies the run that it was at is refused, with its
    last words, and another goes on with the next."""
    answer, left = {**job, "runs": []}, job["runs"]
    while left:
        found, said = _by_a_process({**job, "runs": left})
        if not found:
            return {**answer, "refused": last_words(said)}
        answer["tensors"] = found[0]["tensors"]
        answer["runs"] += found[1:]
        left = left[len(found) - 1 :]
        if left:
            answer["runs"].append({**left[0], "refused": last_words(said)})
            left = left[1:]
    return answer


def _by_a_process(job: Mapping[str, Any]) -> tuple[list[dict[str, Any]], str]:
    """The tensors, an answer a run, and all that was said."""
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            _work(job, Path(folder))
        os.waitpid(child, 0)
        found = Path(folder) / "answer"
        lines = found.read_text().splitlines() if found.exists() else []
        said = (Path(folder) / "log").read_text(errors="replace")
        return [json.loads(line) for line in lines], said


def last_words(log: str) -> str:
    """The line that says why; the last where none does."""
    lines = [line for line in log.splitlines() if line.strip() and not line.startswith("[")]
    why = [line for line in lines if re.search(r"GGML_ASSERT|error|failed", line)]
    return (why or lines or [""])[0][-200:]


def _work(job: Mapping[str, Any], folder: Path) -> None:
    try:
        log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        _prototypes()
        with (folder / "answer").open("w") as out:
            for line in _answers(job, folder):
                out.write(json.dumps(line) + "\n")
                out.flush()
    except Exception as error:
        os.write(2, f"error: {error!r}\n".encode())
        os._exit(1)
    os._exit(0)


def _answers(job: Mapping[str, Any], folder: Path) -> Iterator[dict[str, Any]]:
    said: list[str] = []

    @api.llama_log_callback
    def listen(level: int, text: bytes, data: Any) -> None:
        said.append(text.decode(errors="replace"))
        os.write(2, text)

    api.llama_log_set(listen, None)
    path, virtual = folder / "model.gguf", job.get("virtual", False)
    write(path, job["metadata"], {})
    tensors = directory(path)
    write(path, job["metadata"], tensors, empty=True)
    kinds = {name: stored_as(name, dims)[0].name for name, dims in tensors.items()}
    yield {"tensors": {name: [kinds[name], dims] for name, dims in tensors.items()}}
    model, loaded = None, None
    for run in job["runs"]:
        placement = (run.get("layers"), run.get("cpu_moe", 0))
        if placement != loaded:
            if model:
                api.llama_model_free(model)
            del said[:]
            model, loaded = load(path, *placement, virtual=virtual), placement
            printed = "".join(said)
            if not model:
                yield {**run, "refused": last_words(printed)}
                loaded = None
                continue
        yield {**run, **started(model, run, said, printed)}


def directory(path: Path) -> dict[str, list[int]]:
    """The tensors that llama.cpp gives a model of the key-values in `path`, and their dimensions.
    It makes all that a file may have: the scales of one format are left out."""
    parameters = api.llama_model_default_params()
    devices = (ctypes.c_void_p * 1)(None)
    parameters.devices = ctypes.addressof(devices)
    parameters.no_alloc = True
    model = made(path, parameters)
    if not model:
        raise ValueError("llama.cpp makes no model of these key-values")
    known = function(TENSORS)
    known.restype, known.argtypes = ctypes.POINTER(ctypes.c_void_p * 2), [ctypes.c_void_p]
    begin, end = known(model).contents
    found = (ctypes.c_void_p.from_address(at + PAIR - 8).value for at in range(begin, end, PAIR))
    tensors = dict(map(_described, found))
    api.llama_model_free(model)
    return {name: dims for name, dims in tensors.items() if not name.endswith("scale")}


def _described(tensor: Any) -> tuple[str, list[int]]:
    dims = list(Tensor.from_address(tensor).ne)
    while len(dims) > 1 and dims[-1] == 1:
        dims.pop()
    return function("ggml_get_name")(tensor).decode(), dims


class Init(ctypes.Structure):
    """gguf_init_params."""

    _fields_ = (("no_alloc", ctypes.c_bool), ("ctx", ctypes.c_void_p))


def made(path: Path, parameters: Any) -> Any:
    """A model of key-values alone."""
    init, make = function("gguf_init_from_file"), function("llama_model_init_from_user")
    init.argtypes = [ctypes.c_char_p, Init]
    make.argtypes = [ctypes.c_void_p, SETTER, ctypes.c_void_p, type(parameters)]
    keys = init(str(path).encode(), Init(True, None))
    return make(keys, SETTER(lambda tensor, data: None), None, parameters)


def write(
    path: Path, metadata: Mapping[str, Any], tensors: Mapping[str, list[int]], empty: bool = False
) -> None:
    """A GGUF file; of its tensors the directory alone, with room for their bytes."""
    writer = gguf.GGUFWriter(path, metadata["general.architecture"])
    for name, value in metadata.items():
        add = {bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
        if name == "general.architecture":
            continue
        if name == "tokenizer.ggml.tokens":
            writer.add_token_list([f"token {i}" for i in range(value)])
        elif isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)
        else:
            add[type(value)](name, value)
    size = 0
    for name, dims in tensors.items():
        kind, nbytes = stored_as(name, dims)
        writer.add_tensor_info(name, dims[::-1], None, nbytes, raw_dtype=kind)
        size += -(-nbytes // 32) * 32
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    if empty:
        begin = -(-path.stat().st_size // 32) * 32
        os.truncate(path, begin + size)


def stored_as(name: str, dims: list[int]) -> tuple[Any, int]:
    """The type that the file has a tensor in, and its bytes: matrices that llama.cpp multiplies
    with in 8 bits, the outer ones in 16, all others in 32."""
    elements = 1
    for size in dims:
        elements *= size
    if len(dims) > 1 and name in ("token_embd.weight", "output.weight"):
        return gguf.GGMLQuantizationType.F16, 2 * elements
    quantised = re.search(r"\.(attn|ffn)_[a-z_]+\.weight$", name) and len(dims) > 1
    if quantised and dims[0] % 32 == 0 and "_norm" not in name and "_inp" not in name:
        return gguf.GGMLQuantizationType.Q8_0, elements // 32 * 34
    return gguf.GGMLQuantizationType.F32, 4 * elements


def load(path: Path, layers: int | None, cpu_moe: int, *, virtual: bool) -> Any:
    """With so many layers on the device, None: without one."""
    parameters = api.llama_model_default_params()
    devices = (ctypes.c_void_p * 2)(None, None)
    if layers is not None:
        registered = function("ggml_backend_rpc_add_server")(ENDPOINT)
        devices[0] = function("ggml_backend_reg_dev_get")(registered, 0)
        parameters.n_gpu_layers = layers
    parameters.devices = ctypes.addressof(devices)
    patterns = [rb"blk\.%d%s" % (i, EXPERTS) for i in range(cpu_moe)]
    own = function("ggml_backend_cpu_buffer_type")()
    overrides = (Override * (cpu_moe + 1))(*((p, own) for p in patterns))
    if cpu_moe:
        parameters.tensor_buft_overrides = ctypes.addressof(overrides)
    parameters.use_extra_bufts = False  # repacked for this machine's own instructions
    parameters.no_alloc = virtual
    without_mapping(parameters)
    return api.llama_model_load_from_file(str(path).encode(), parameters)


def without_mapping(parameters: Any) -> None:
    """Mapped, a buffer of the host's spans all of the file between two of its tensors."""
    if hasattr(parameters, "load_mode"):
        parameters.load_mode = 0
    else:
        parameters.use_mmap = False


def started(model: Any, run: Mapping[str, Any], said: list[str], loaded: str) -> dict[str, Any]:
    """The buffers of a context in MiB as printed, by their kind and place."""
    parameters = context_parameters(run)
    del said[:]
    context = api.llama_init_from_model(model, parameters)
    printed = "".join(said)
    if not context:
        return {"refused": last_words(printed)}
    api.llama_free(context)
    return {"buffers": buffers(loaded + printed)}


def context_parameters(run: Mapping[str, Any]) -> Any:
    parameters = api.llama_context_default_params()
    parameters.n_ctx = run["ctx"]
    parameters.n_batch = run.get("batch", 2048)
    parameters.n_ubatch = run.get("ubatch", 512)
    parameters.n_seq_max = run.get("seqs", 1)
    parameters.kv_unified = run.get("unified", False)
    parameters.swa_full = run.get("swa_full", False)
    parameters.flash_attn_type = run.get("flash", -1)
    parameters.n_outputs_max = run.get("outputs", 0)
    parameters.type_k = TYPES[run.get("k", "f16")]
    parameters.type_v = TYPES[run.get("v", "f16")]
    return parameters


def buffers(text: str) -> dict[str, float]:
    """By kind and place; `KV` of all places, which is printed even where nothing is allocated."""
    sizes = [float(size) for size in re.findall(r"llama_kv_cache: size = +([0-9.]+) MiB", text)]
    found: dict[str, float] = {"KV": round(sum(sizes), 2)} if sizes else {}
    for place, kind, size in _BUFFER.findall(text):
        where = "device" if place.startswith("RPC") else "host"
        key = f"{'RS' if kind.startswith('DSV4') else kind} {where}"
        found[key] = round(found.get(key, 0.0) + float(size), 2)
    return found


if __name__ == "__main__":
    main()
