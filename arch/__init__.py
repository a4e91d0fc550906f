"""What tells one `model_type` from another: one `Architecture` value for each, in one file.

Where is the file of a type? `grep -rl '"gemma3_text"' arch` names it, as does
generated/lineages.json. The rooms of lineages, one file for each family that shares a parent:

    decoders/          layers that attend: llama, gemma, qwen, deepseek, ...
    gpt/               decoders of the first generation: gpt2, gpt_neox, opt
    hybrids/           decoders that keep recurrent or other state, too: mamba, jamba, falcon, ...
    encoders/          of text, images and sound: bert, vit, clip, wav2vec2, ...
    encoder_decoders/  bart, t5, whisper
    multimodal/        towers around language models of the lineages above: llava, qwen_vision, ...

A file holds functions for what no value can say, then tensor names (`*_NAMES`), bodies (`*_BODY`)
and towers (`*_TOWER`), and last its ARCHITECTURES: a relative of a type is one more entry there,
`LLAMA.relative("x", attention={"norm": "head"})`, and `python tools/lineages.py` adds it to the
index. `architecture.Architecture` says what each field means:

    attention   heads, biases, norms, windows, what a layer keeps: attention/, states/
    body        embeddings, feed-forward, norms, heads, towers: body/
    tensors     how attention tensors are called, and how a fused projection lies: tensors/
    gguf        the same for files of llama.cpp: gguf/

So the window rule of gemma3 is `kinds` and `window` of "gemma3_text" in decoders/gemma.py, and the
bias of GPT-2's fused projection is in the MHA_CROSSING of attention/shared.py that gpt/gpt2.py
names; its tensor, `c_attn`, in the GPT2_NAMES of tensors/names.py.

Read a config with `read_config.read_config`; it and `registry` import only the files of the types
that a config names.
"""
