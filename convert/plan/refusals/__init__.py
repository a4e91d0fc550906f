"""Why a model, or a tensor of it, is not converted: every refusal, raised while a plan is made.

They are looked for in this order, each one on the ground that those before it have cleared:

1. `source`: what no conversion can start from (no folder, errors of its audit, no safetensors, a
   stale index, quantised weights). Nothing that a config says counts before its weights agree.
2. `types.STATES`: a model that keeps no K/V heads has none to merge, whatever its type.
3. `types` and `counts`, home by home: whether the class can hold the result at all, then whether
   the number of heads that was asked for is one that it can hold. Homes are tried in the order of
   `homes.finding.HOMES`; the most telling of their refusals is raised.
4. `tensors`: in the home that was found, each tensor in the order of the files, then each layer:
   what is near attention must be known, and every layer complete.
5. `merging`: what only the methods that read weights ask for, since means need less.
"""
