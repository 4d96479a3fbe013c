"""Other people's words: for a thing that is here, for several, or for one that is not, with what is nearest to it.

One of a list that is meant stands first; those of another kind than the one asked for are left out by who looks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

_TYPES = {
    "fp8": ("f8_e4m3", "f8_e5m2", "mxfp8", "f8-tensor"),
    "f8": ("f8_e4m3", "f8_e5m2", "mxfp8", "f8-tensor"),
    "float8": ("f8_e4m3", "f8_e5m2"),
    "mxfp8": ("f8_e4m3", "f8_e5m2"),
    "e4m3": ("f8_e4m3",),
    "hf8": ("f8_e4m3",),
    "fp8_e4m3": ("f8_e4m3",),
    "fp8_e4m3fn": ("f8_e4m3",),
    "f8_e4m3fn": ("f8_e4m3",),
    "float8_e4m3": ("f8_e4m3",),
    "float8_e4m3fn": ("f8_e4m3",),
    "e5m2": ("f8_e5m2",),
    "bf8": ("f8_e5m2",),
    "fp8_e5m2": ("f8_e5m2",),
    "float8_e5m2": ("f8_e5m2",),
    "fp6": ("f6_e2m3", "f6_e3m2", "mxfp6"),
    "f6": ("f6_e2m3", "f6_e3m2"),
    "mxfp6": ("f6_e2m3", "f6_e3m2"),
    "e2m3": ("f6_e2m3",),
    "e3m2": ("f6_e3m2",),
    "fp4": ("f4_e2m1", "mxfp4", "nvfp4"),
    "f4": ("f4_e2m1", "mxfp4", "nvfp4"),
    "float4": ("f4_e2m1",),
    "e2m1": ("f4_e2m1",),
    "nf4": ("f4_e2m1", "u4"),  # a table of sixteen levels: none here
    "nvfp4": ("f4_e2m1",),
    "mxfp4": ("f4_e2m1",),
    "mxint8": ("s8",),
    "int8": ("s8", "u8", "int8-fast", "int8-exact", "int8-vnni"),
    "i8": ("s8",),
    "sint8": ("s8",),
    "qint8": ("s8",),
    "q8_0": ("s8",),
    "char": ("s8",),
    "w8a8": ("int8-vnni", "int8-exact"),
    "uint8": ("u8",),
    "quint8": ("u8",),
    "ui8": ("u8",),
    "byte": ("u8",),
    "uchar": ("u8",),
    "bool": ("u8",),
    "int4": ("s4", "u4", "s4-weights"),
    "i4": ("s4",),
    "s4": ("s4-weights",),
    "s8": ("s8-weights", "int8-vnni"),
    "w8a16": ("s8-weights",),
    "fp16_weights": ("f16",),
    "bf16_weights": ("bf16",),
    "q4_0": ("s4", "s4-weights"),
    "q4": ("q4_0", "s4"),
    "q5": ("q5_0",),
    "q8": ("q8_0", "s8"),
    "w4a16": ("s4-weights",),
    "gptq": ("s4-weights",),
    "awq": ("s4-weights",),
    "uint4": ("u4",),
    "int2": ("s2", "u2"),
    "uint2": ("u2",),
    "int16": ("s16",),
    "i16": ("s16",),
    "short": ("s16",),
    "uint16": ("u16",),
    "int32": ("s32",),
    "i32": ("s32",),
    "int": ("s32",),
    "uint32": ("u32",),
    "int64": ("s64", "s32"),
    "i64": ("s64", "s32"),
    "long": ("s64", "s32"),
    "uint64": ("u64",),
    "float": ("f32",),
    "fp32": ("f32", "strict"),
    "f32": ("strict",),
    "float32": ("f32", "strict"),
    "single": ("f32", "strict"),
    "double": ("f64", "f32"),
    "fp64": ("f64", "f32"),
    "float64": ("f64", "f32"),
    "f64": ("f32",),
    "half": ("f16",),
    "fp16": ("f16", "avx512_core_fp16"),
    "float16": ("f16",),
    "bfloat": ("bf16",),
    "bfloat16": ("bf16",),
    "brain_float": ("bf16",),
    "tf32": ("fpmath-tf32",),
    "tensorfloat32": ("tf32", "fpmath-tf32"),
    "tfloat32": ("tf32", "fpmath-tf32"),
    "bf16": ("fpmath-bf16", "avx512_core_bf16"),
    "f16": ("fpmath-f16",),
    "ue8m0": ("e8m0",),
    "acc16": ("s16", "f16"),
    "acc32": ("s32", "f32"),
}
_ISA_CAPS = {
    "fma": ("avx2",),
    "sse4": ("sse41",),
    "sse4.1": ("sse41",),
    "x86_64_v3": ("avx2",),
    "x86_64_v4": ("avx512_core",),
    **dict.fromkeys(("avx512", "avx_512", "avx512f", "avx512bw", "avx512vl", "avx512dq"), ("avx512_core",)),
    "skylake_avx512": ("avx512_core",),
    "vnni": ("avx512_core_vnni", "avx2_vnni"),
    "avx512_vnni": ("avx512_core_vnni",),
    "avx512vnni": ("avx512_core_vnni",),
    "avx_vnni": ("avx2_vnni",),
    "avxvnni": ("avx2_vnni",),
    "avx_vnni_int8": ("avx2_vnni_int8",),
    "avx512_bf16": ("avx512_core_bf16",),
    "avx512bf16": ("avx512_core_bf16",),
    "avx512_fp16": ("avx512_core_fp16",),
    "avx512fp16": ("avx512_core_fp16",),
    "amx": ("avx512_core_amx",),
    "amx_int8": ("avx512_core_amx",),
    "amx_bf16": ("avx512_core_amx",),
    "amx_fp16": ("avx512_core_amx_fp16",),
}
#: of hardware that is not here: what is nearest to it, and is not it
_NEAREST_CAPS = {
    "avx": ("avx2",),
    **dict.fromkeys(("sse", "sse2", "sse3", "ssse3", "sse4.2", "x86_64", "x86_64_v2"), ("sse41",)),
    **dict.fromkeys(("avx10", "avx10.1", "avx10_1", "avx10_1_512", "avx10.2", "avx10_2"), ("avx512_core_fp16",)),
}
_POST_OPERATIONS = {
    "gelu": ("gelu_erf", "gelu_tanh"),
    "sigmoid": ("logistic",),
    "silu": ("swish",),
    "hswish": ("hardswish",),
    "hard_swish": ("hardswish",),
    "hard_sigmoid": ("hardsigmoid",),
    "softplus": ("soft_relu",),
    "multiply": ("mul",),
    "bias": ("add",),
    "scale": ("mul", "linear"),
    "residual": ("sum", "add"),
    "leaky_relu": ("relu",),  # which takes a slope
    "leakyrelu": ("relu",),
    "relu6": ("clip",),
    "clamp": ("clip",),
    "rsqrt": ("pow",),
    "reciprocal": ("pow",),
}
_PRIMITIVES = {
    **dict.fromkeys(("gemm", "mm", "bmm", "dot", "einsum", "attention"), ("matmul",)),
    **dict.fromkeys(("mha", "sdpa", "flash_attention", "scaled_dot_product_attention"), ("attention", "matmul")),
    **dict.fromkeys(("linear", "dense", "fc", "fully_connected"), ("inner_product",)),
    **dict.fromkeys(("conv", "conv1d", "conv2d", "conv3d", "depthwise"), ("convolution",)),
    **dict.fromkeys(("pool", "avgpool", "maxpool", "avg_pool", "max_pool"), ("pooling",)),
    **dict.fromkeys(("layernorm", "layer_norm", "rmsnorm", "rms_norm"), ("layer_normalization",)),
    **dict.fromkeys(("relu", "gelu", "sigmoid", "silu", "tanh", "activation", "elementwise"), ("eltwise",)),
    **dict.fromkeys(("batchnorm", "batch_norm"), ("batch_normalization",)),
    **dict.fromkeys(("groupnorm", "group_norm"), ("group_normalization",)),
    "add": ("binary",),
    **dict.fromkeys(("conv_transpose", "convtranspose", "deconv", "transposed_convolution"), ("deconvolution",)),
}
_FUNCTIONS = {
    **dict.fromkeys(("load_model", "load_onnx", "from_onnx", "import_onnx"), ("load",)),
    **dict.fromkeys(("benchmark", "profile", "simulate", "predict", "price"), ("estimate",)),
}
_LIBRARIES = {
    **dict.fromkeys(("mkldnn", "dnnl", "openvino", "ipex", "pytorch", "torch", "tensorflow", "zendnn"), ("onednn",)),
    **dict.fromkeys(("brgemm", "jit", "brg"), ("onednn",)),
    **dict.fromkeys(("ort", "mlas", "onnx"), ("onnxruntime",)),
    **dict.fromkeys(("llama.cpp", "llamacpp", "llama_cpp", "gguf", "whisper.cpp"), ("ggml",)),
    **dict.fromkeys(("auto", "best", "default", "eigen", "blas", "cublas", "cudnn", "cutlass"), ("fastest", "strict")),
}
_MACHINES = {
    "cpu": ("zen5", "gnr"),
    "gpu": ("b580", "h100"),
    **dict.fromkeys(("epyc", "ryzen"), ("zen5", "zen4", "zen3")),
    "turin": ("zen5",),
    **dict.fromkeys(("genoa", "genoa_x", "bergamo"), ("zen4",)),
    **dict.fromkeys(("milan", "milan_x", "vermeer", "cezanne"), ("zen3",)),
    "xeon": ("gnr", "spr", "icx", "clx"),
    "core": ("adl-p",),
    **dict.fromkeys(("lunarlake", "lunar_lake"), ("lnl",)),
    "arc": ("b580", "a770"),
    **dict.fromkeys(("battlemage", "xe2"), ("b580", "lnl")),
    **dict.fromkeys(("alchemist", "dg2"), ("a770",)),
    **dict.fromkeys(("pvc", "ponte_vecchio"), ("max1550", "max1100")),
    **dict.fromkeys(("iris", "iris_xe"), ("dg1",)),
    "pascal": ("titan_xp",),
    **dict.fromkeys(("nvidia", "cuda", "dgx"), ("h100", "a100", "v100")),
    "hopper": ("h100", "h200"),
    "ampere": ("a100",),
    **dict.fromkeys(("ada", "ada_lovelace"), ("l40s", "rtx4090")),
    "rtx_4090": ("rtx4090",),
    "volta": ("v100",),
}
_NEAREST_MACHINES = {
    "zen6": ("zen5",),
    **dict.fromkeys(("zen2", "zen1", "rome", "naples", "znver2", "znver1"), ("zen3",)),
    **dict.fromkeys(("broadwell", "kabylake", "coffeelake", "cometlake", "whiskeylake"), ("hsw",)),
    **dict.fromkeys(("tremont", "goldmont", "goldmont_plus", "silvermont", "atom"), ("hsw",)),
    **dict.fromkeys(("gracemont", "n100"), ("adl-p",)),
    **dict.fromkeys(("cooperlake", "cpx"), ("clx",)),
    **dict.fromkeys(("tigerlake", "rocketlake"), ("icx",)),
    **dict.fromkeys(("sandybridge", "ivybridge"), ("hsw",)),
    "knl": ("skx",),
    "emr": ("spr",),
    **dict.fromkeys(("diamondrapids", "dmr"), ("gnr",)),
    **dict.fromkeys(("raptorlake", "meteorlake", "arrowlake"), ("adl-p",)),
    "p100": ("titan_xp",),
    **dict.fromkeys(("h800", "gh200"), ("h100", "h200")),
    "a800": ("a100",),
    "l40": ("l40s", "rtx4090"),
    "blackwell": ("h200",),
    **dict.fromkeys(("t4", "turing", "xavier"), ("v100",)),
    **dict.fromkeys(("jetson", "orin"), ("a100",)),
}
#: the ISA cap up to which a core like one here goes, by patterns of its name, where that is less than the one here has
_CAPS_OF_NEAREST = {
    **dict.fromkeys(("tremont", "goldmont*", "silvermont", "atom"), "sse41"),
    "skylake": "avx2",
    "gracemont": "avx2_vnni",
    "n100": "avx2_vnni",
}
_LAYOUTS = {
    **dict.fromkeys(("row", "row_major", "nn", "n", "plain", "kn", "c"), ("ab", "oihw")),
    **dict.fromkeys(("col", "col_major", "column_major", "nt", "t", "tn", "transposed", "nk", "f"), ("ba",)),
    "nchw": ("oihw", "ab"),
    "oihw": ("ab",),
    "nhwc": ("any", "ba"),
    **dict.fromkeys(("hwc", "channels_last", "ohwi"), ("nhwc", "any", "ba")),
    **dict.fromkeys(("blocked", "packed", "optimal"), ("any",)),
}
_MATH = {
    **dict.fromkeys(("highest", "ieee", "precise", "exact", "accurate"), ("strict",)),
    "relaxed": ("any",),
    **dict.fromkeys(("mixed", "mixed_precision", "amp", "autocast"), ("bf16", "f16")),
    **dict.fromkeys(("high", "medium", "fast", "fastmath"), ("any", "relaxed")),
}
_ENGINES = {
    **dict.fromkeys(("llvm", "c", "native", "jit", "fast", "numba"), ("compiled",)),
    **dict.fromkeys(("numpy", "python", "ref", "slow"), ("reference",)),
}
_ARGUMENTS = {
    **dict.fromkeys(("w", "weight", "weights", "b", "filter", "kernel"), ("wei",)),
    **dict.fromkeys(("x", "a", "input", "activations", "source"), ("src",)),
    **dict.fromkeys(("y", "c", "output", "destination", "result"), ("dst",)),
    **dict.fromkeys(("per_tensor", "tensor", "single", "all"), ("common",)),
    **dict.fromkeys(("per_channel", "per_row", "per_column", "channel", "oc"), ("per_oc",)),
}
#: keywords of functions
_KEYWORDS = {
    **dict.fromkeys(("ph", "pw", "pd", "pad", "pads"), ("padding",)),
    **dict.fromkeys(("sh", "sw", "sd", "stride"), ("strides",)),
    **dict.fromkeys(("dh", "dw", "dd", "dilations"), ("dilation",)),
    **dict.fromkeys(("g", "group"), ("groups",)),
    **dict.fromkeys(("device", "cpu", "gpu", "target", "arch", "hardware", "host"), ("machine",)),
    **dict.fromkeys(("cores", "jobs", "nthreads", "n_threads", "num_threads"), ("threads",)),
    **dict.fromkeys(("dtype", "type", "out_dtype", "output_dtype"), ("dst", "dt", "modes")),
    **dict.fromkeys(("dim", "dims"), ("axis", "axes", "shape")),
    **dict.fromkeys(("batch", "batch_size", "n"), ("mb", "src_batch", "shape")),
    **{size: (f"i{size}",) for size in "chw"},
    "mcpu": ("machine",),
    "wei": ("weights", "dt"),
    **dict.fromkeys(("src", "weights", "dst"), ("dt",)),
    **dict.fromkeys(("precision", "precisions", "mode", "dt"), ("modes",)),
    **dict.fromkeys(("input", "inputs", "data", "feed"), ("feeds",)),
    "mb": ("shape",),
    **dict.fromkeys(("activation", "post_op", "post_ops", "epilogue", "relu", "alpha", "beta"), ("attr",)),
    **dict.fromkeys(("fpmath_mode", "math_mode"), ("fpmath",)),
    **dict.fromkeys(("accumulation_mode", "accumulate"), ("acc_mode",)),
    **{f"{tensor}_scale{s}": ("scales",) for tensor in ("src", "wei", "weights", "dst") for s in ("", "s")},
    **{f"{tensor}_zero_point{s}": ("zero_points",) for tensor in ("src", "wei", "weights", "dst") for s in ("", "s")},
}
#: fields of results and of loops, which no other list of names is asked for
FIELDS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("cycles", "throughput", "rthroughput", "block_rthroughput"), ("cycles_per_iteration", "gops")),
    **dict.fromkeys(("time", "runtime", "elapsed", "duration", "wall_time", "time_s", "time_us"), ("seconds",)),
    **dict.fromkeys(("latency", "cycle_count", "cycles_per_run"), ("cycles", "seconds")),
    **dict.fromkeys(("flops", "gflops", "tflops", "performance"), ("gops",)),
    **dict.fromkeys(("values", "value", "outputs", "array", "numpy", "dst", "result"), ("output",)),
    **dict.fromkeys(("kernel_name", "impl", "algorithm"), ("implementation",)),
    **dict.fromkeys(("bandwidth", "bytes"), ("traffic",)),
    **dict.fromkeys(("bottleneck", "limit", "limiter"), ("bound",)),
    **dict.fromkeys(("saturated", "saturations"), ("saturation",)),
    **dict.fromkeys(("candidates", "alternatives"), ("dispatch",)),
    **dict.fromkeys(("errors", "error"), ("error_bound",)),
    **dict.fromkeys(("uops", "ports"), ("instructions",)),
    **dict.fromkeys(("port_pressure", "pressure", "resource_pressure"), ("ports", "instructions")),
    **dict.fromkeys(("asm", "assembly", "code", "listing", "program"), ("kernel", "body")),
    **dict.fromkeys(("stalls", "breakdown", "profile"), ("causes",)),
    **dict.fromkeys(("sqnr", "sqnr_db", "accuracy", "quality"), ("error_bound", "departures")),
    **dict.fromkeys(("summary", "describe", "to_csv"), ("to_frame", "instructions")),
    **dict.fromkeys(("critical_path", "dependencies"), ("chain",)),
    **dict.fromkeys(("dataframe", "frame", "df", "to_pandas"), ("to_frame",)),
    **dict.fromkeys(("json", "to_dict"), ("to_json",)),
}
#: families with a number behind them by a pattern of `fnmatch`, and what is nearest to them here
_FAMILIES = {
    **dict.fromkeys(("h[0-9][0-9]*", "b[1-3]00*", "gb[0-9]*"), ("h100", "h200")),
    **dict.fromkeys(("a[1-48]0*", "rtx_a*"), ("a100",)),  # and not Intel's a750
    **dict.fromkeys(("rtx*", "geforce*"), ("rtx4090",)),
    "l4*": ("l40s",),
    **dict.fromkeys(("p[14]0*", "quadro*", "tesla*"), ("v100",)),
    "gtx*": ("titan_xp",),
    **dict.fromkeys(("*i[3579]_10??g?", "*i[3579]_11*"), ("icx",)),  # Ice, Tiger and Rocket Lake, and not Comet Lake
    **dict.fromkeys(("*i[3579]_[4-9]???*", "*i[3579]_10*"), ("hsw",)),
    **dict.fromkeys(("i[3579]*", "core_*"), ("adl-p",)),
    "jetson*": ("a100",),
    "arc_a*": ("a770",),
    "arc_b*": ("b580",),
    **dict.fromkeys(("epyc_7??3*", "ryzen_*5[1-9]?0*", "5[5-9]?0x*"), ("zen3",)),
    "epyc_*": ("zen5", "zen4"),
    "ryzen_*": ("zen5", "zen4"),
    "xeon_*": ("gnr", "spr", "icx", "clx"),
}
#: and llama.cpp's blocks, which are read here, and not all made
_FAMILIES |= {
    "q[23]_k*": ("q4_0",),
    "q4_k*": ("q4_1", "q4_0"),
    "q5_k*": ("q5_1",),
    "q6_k*": ("q8_0",),
    "iq*": ("q4_0",),
}
_PREFIXES = ("eltwise_", "binary_")
_INTRINSIC = re.compile(r"_(mm(?:256|512)?|tile)_(?:maskz?_|mask3_)?(\w+?)(?:_(?:ep|p|s)[a-z]*\d*h?b?f?\d*)?")


def _merged(*tables: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    """One table: a word of several kinds has the names of each."""
    words = dict.fromkeys(word for table in tables for word in table)
    return {word: tuple(name for table in tables for name in table.get(word, ())) for word in words}


ALIASES: Mapping[str, tuple[str, ...]] = _merged(
    *(_TYPES, _ISA_CAPS, _POST_OPERATIONS, _PRIMITIVES, _LIBRARIES, _MACHINES, _LAYOUTS),
    *(_MATH, _ENGINES, _ARGUMENTS, _KEYWORDS, _FUNCTIONS),
)
_NEAREST: Mapping[str, tuple[str, ...]] = _merged(_NEAREST_CAPS, _NEAREST_MACHINES)


def meant_by(word: str) -> tuple[str, ...]:
    """Names of all kinds that a word may stand for, the likeliest first; the word in small letters.

    >>> meant_by("llama.cpp"), meant_by("torch.bfloat16")[0], meant_by("no such thing")
    (('ggml',), 'bf16', ())
    """
    word = _plain(word)
    if word in ALIASES:
        return ALIASES[word]
    if (dtype := word.rpartition(".")[2]) in _TYPES:  # with the package that has it
        return _TYPES[dtype]
    return (word.partition("_")[2],) if word.startswith(_PREFIXES) else ()  # of oneDNN's algorithms


def nearest_to(word: str) -> tuple[str, ...]:
    """Hardware that is nearest to one that is not here; the word in small letters.

    >>> nearest_to("rtx 3080"), nearest_to("zen2"), nearest_to("v100")
    (('rtx4090',), ('zen3',), ())
    """
    word = _plain(word)
    if word in _NEAREST:
        return _NEAREST[word]
    return next((names for pattern, names in _FAMILIES.items() if fnmatchcase(word, pattern)), ())


def cap_of(word: str) -> str:
    """The ISA cap up to which a core goes that is not here, where the nearest one here has more; else empty.

    >>> cap_of("skylake"), cap_of("i5-8250U")
    ('avx2', '')
    """
    return next((cap for pattern, cap in _CAPS_OF_NEAREST.items() if fnmatchcase(_plain(word.lower()), pattern)), "")


def instructions_like_intrinsic(word: str, names: Iterable[str]) -> list[str]:
    """The instructions that are named as an intrinsic is, the shortest first; none for any other word.

    >>> instructions_like_intrinsic("_mm512_mask_dpbusd_epi32", ["vpdpbusds", "vpdpbusd", "tdpbusd"])
    ['vpdpbusd', 'vpdpbusds']
    """
    if (found := _INTRINSIC.fullmatch(word.lower())) is None:
        return []
    begins = (f"t{found[2]}",) if found[1] == "tile" else (f"v{found[2]}", f"vp{found[2]}")
    return sorted((name for name in names if name.startswith(begins)), key=len)


def _plain(word: str) -> str:
    return word.replace("-", "_").replace(" ", "_")
