"""The graphs that llama.cpp makes of models of key-values alone, tensor by tensor.

    python llama_graph_worker.py < JOBS > ANSWERS   in an environment with llama-cpp-python, gguf

A job is a JSON line: `name`, `metadata`, and `run` (`ctx`, `seqs`, `unified`, `ubatch`, `outputs`,
`flash`, `unfused`; `reserved`: of how many sequences a micro-batch is, if not of each). An answer
is the job with `tensors` and `graph`, or `refused`. A row of it is [operation, name, flags, bytes,
dimensions, row of which it is a view, rows that it reads, place]: its inputs before its nodes, in
llama.cpp's order; `place` is weights, cache or null.
"""

import ctypes
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import llama_worker as worker
from llama_cpp import llama_cpp as api

RESERVE = "_Z19llama_graph_reserveP13llama_contextjjj"  # src/llama-ext.h
SETTINGS = "_ZNK13llama_context11get_cparamsEv"  # src/llama-context.h
WEIGHTS = 1  # GGML_BACKEND_BUFFER_USAGE_WEIGHTS


class Tensor(ctypes.Structure):
    """ggml_tensor (ggml/include/ggml.h)."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
        ("op", ctypes.c_int),
        ("op_params", ctypes.c_int32 * 16),
        ("flags", ctypes.c_int32),
        ("src", ctypes.c_void_p * 10),
        ("view_src", ctypes.c_void_p),
        ("view_offs", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
        ("name", ctypes.c_char * 64),
    )


class Settings(ctypes.Structure):
    """The first fields of a llama_cparams (src/llama-cparams.h)."""

    _fields_ = (
        ("n_ctx", ctypes.c_uint32),
        ("n_ctx_seq", ctypes.c_uint32),
        ("n_batch", ctypes.c_uint32),
        ("n_ubatch", ctypes.c_uint32),
        ("n_seq_max", ctypes.c_uint32),
        ("others", ctypes.c_uint32 * 13),
        ("embeddings", ctypes.c_bool),
        ("embeddings_nextn", ctypes.c_bool),
        ("embeddings_nextn_masked", ctypes.c_bool),
        ("causal_attn", ctypes.c_bool),
        ("offload_kqv", ctypes.c_bool),
        ("flash_attn", ctypes.c_bool),
        ("auto_fa", ctypes.c_bool),
        ("fused_gdn_ar", ctypes.c_bool),
        ("fused_gdn_ch", ctypes.c_bool),
        ("auto_fgdn", ctypes.c_bool),
        ("fused_lid", ctypes.c_bool),
        ("auto_flid", ctypes.c_bool),
        ("fused_dsv4_hc_pre", ctypes.c_bool),
        ("fused_dsv4_hc_comb", ctypes.c_bool),
        ("fused_dsv4_hc_post", ctypes.c_bool),
    )


class Graph(ctypes.Structure):
    """ggml_cgraph (ggml/src/ggml-impl.h)."""

    _fields_ = (
        ("size", ctypes.c_int),
        ("n_nodes", ctypes.c_int),
        ("n_leafs", ctypes.c_int),
        ("nodes", ctypes.POINTER(ctypes.c_void_p)),
        ("grads", ctypes.c_void_p),
        ("grad_accs", ctypes.c_void_p),
        ("leafs", ctypes.POINTER(ctypes.c_void_p)),
    )


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(answered(json.loads(line))), flush=True)


def answered(job: Mapping[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        child = os.fork()
        if child == 0:
            _work(job, Path(folder))
        os.waitpid(child, 0)
        found = Path(folder) / "answer"
        if found.exists():
            return {**job, **json.loads(found.read_text())}
        said = (Path(folder) / "log").read_text(errors="replace")
        return {**job, "refused": worker.last_words(said)}


def _work(job: Mapping[str, Any], folder: Path) -> None:
    try:
        log = os.open(folder / "log", os.O_CREAT | os.O_WRONLY)
        os.dup2(log, 1)
        os.dup2(log, 2)
        _prototypes()
        answer = _answer(job, folder)
        (folder / "partly").write_text(json.dumps(answer))
        (folder / "partly").rename(folder / "answer")
    except Exception as error:
        os.write(2, f"error: {error!r}\n".encode())
        os._exit(1)
    os._exit(0)


def _prototypes() -> None:
    worker._prototypes()
    for name, result, arguments in (
        ("ggml_op_name", ctypes.c_char_p, [ctypes.c_int]),
        ("ggml_unary_op_name", ctypes.c_char_p, [ctypes.c_int]),
        ("ggml_nbytes", ctypes.c_size_t, [ctypes.c_void_p]),
        ("ggml_backend_buffer_get_usage", ctypes.c_int, [ctypes.c_void_p]),
        (SETTINGS, ctypes.POINTER(Settings), [ctypes.c_void_p]),
        (RESERVE, ctypes.POINTER(Graph), [ctypes.c_void_p, *[ctypes.c_uint32] * 3]),
    ):
        found = worker.function(name)
        found.restype, found.argtypes = result, arguments


def _answer(job: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    path, run = folder / "model.gguf", job["run"]
    worker.write(path, job["metadata"], {})
    tensors = worker.directory(path)
    worker.write(path, job["metadata"], tensors, empty=True)
    model = worker.load(path, None, 0, virtual=True)
    parameters = worker.context_parameters(run)
    context = api.llama_init_from_model(model, parameters)
    if run.get("unfused"):
        _unfuse(context, parameters)
    tokens = min(parameters.n_ubatch, parameters.n_ctx)
    outputs = min(tokens, parameters.n_outputs_max or tokens)
    sequences = run.get("reserved", parameters.n_seq_max)
    graph = worker.function(RESERVE)(context, tokens, sequences, outputs).contents
    return {"tensors": tensors, "graph": list(rows(graph))}


def _unfuse(context: Any, parameters: Any) -> None:
    """As llama.cpp does itself where a layer's last operation is computed on the next one's device
    (llama_context::resolve_fused_ops)."""
    settings = worker.function(SETTINGS)(context).contents
    if (settings.n_ubatch, settings.n_seq_max) != (parameters.n_ubatch, parameters.n_seq_max):
        raise ValueError("llama_cparams has other fields than were written down here")
    settings.fused_dsv4_hc_post = False


def rows(graph: Graph) -> Iterator[list[Any]]:
    """Of a graph that no device has split."""
    at = [graph.leafs[i] for i in range(graph.n_leafs)]
    at += [graph.nodes[i] for i in range(graph.n_nodes)]
    known = {address: i for i, address in enumerate(at)}
    for address in at:
        tensor = Tensor.from_address(address)
        yield [
            _operation(tensor),
            tensor.name.decode(),
            tensor.flags & 3,  # input, output
            worker.function("ggml_nbytes")(address),
            list(tensor.ne),
            known.get(tensor.view_src, tensor.view_src and -1),
            [known[read] for read in tensor.src if read],
            _place(tensor),
        ]


def _operation(tensor: Tensor) -> str:
    name = worker.function("ggml_op_name")(tensor.op).decode()
    if name == "UNARY":
        name = worker.function("ggml_unary_op_name")(tensor.op_params[0]).decode()
    return str(name)


def _place(tensor: Tensor) -> str | None:
    buffer = tensor.buffer
    if not buffer and tensor.view_src:
        buffer = Tensor.from_address(tensor.view_src).buffer
    if not buffer or tensor.flags & 1:
        return None
    usage = worker.function("ggml_backend_buffer_get_usage")(buffer)
    return "weights" if usage == WEIGHTS else "cache"


if __name__ == "__main__":
    main()
