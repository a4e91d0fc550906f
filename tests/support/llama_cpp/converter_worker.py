"""llama.cpp's own converter: `converter_worker.py SOURCES FOLDER...`.

It writes FOLDER/other.gguf, in float32.

A line on standard output for each folder: what failed, or nothing. The vocabulary is left out,
since it knows none but published ones.
"""

import logging
import sys
from pathlib import Path
from typing import Any


def main(sources: str, *folders: str) -> None:
    sys.path[:0] = [sources, f"{sources}/gguf-py"]
    logging.disable(logging.CRITICAL)
    import conversion
    import gguf
    from conversion.base import ModelBase, ModelType, get_model_architecture

    def no_vocabulary(self: Any) -> None:
        self.gguf_writer.add_tokenizer_model("none")

    for folder in map(Path, folders):
        try:
            settings = ModelBase.load_hparams(folder, False)
            kind = conversion.get_model_class(get_model_architecture(settings, ModelType.TEXT))
            kind.set_vocab = no_vocabulary
            kind(folder, gguf.LlamaFileType.ALL_F32, folder / "other.gguf").write()
        except Exception as error:  # whatever it does not know
            print(f"{type(error).__name__}: {error}"[:60])
        else:
            print()


if __name__ == "__main__":
    main(*sys.argv[1:])
