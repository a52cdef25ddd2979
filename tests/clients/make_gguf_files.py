"""Makes tests/fixtures/gguf/container.gguf with the gguf package: a key of every type, a tensor of every type that is
read, and in container.safetensors the values that the package gives for them.

    python make_gguf_files.py [DIR]
"""
import pathlib
import sys

import gguf
import numpy as np
import safetensors.numpy

Q = gguf.GGMLQuantizationType
V = gguf.GGUFValueType


def half(values):
    return np.asarray(values, np.float16).view(np.uint8)


def q4_k_blocks(random, rows, blocks):
    out = random.integers(0, 256, (rows, blocks, 144), dtype=np.uint8)
    out[:, :, 0:2] = half(random.uniform(1e-3, 2e-2, (rows, blocks, 1)))
    out[:, :, 2:4] = half(random.uniform(1e-3, 2e-2, (rows, blocks, 1)))
    return out.reshape(rows, -1)


def q6_k_blocks(random, rows, blocks):
    out = random.integers(0, 256, (rows, blocks, 210), dtype=np.uint8)
    out[:, :, 208:210] = half(random.uniform(-2e-2, 2e-2, (rows, blocks, 1)))
    return out.reshape(rows, -1)


def tensors(random):
    plain = random.normal(0, 1, (3, 5)).astype(np.float32)
    plain[0, :3] = [0.0, 1e-7, -65504.0]
    rows = random.normal(0, 0.1, (3, 96)).astype(np.float32)
    rows[1, 32:64] = 0
    yield "plain.f32", Q.F32, plain
    yield "plain.f16", Q.F16, plain.astype(np.float16)
    yield "plain.bf16", Q.BF16, gguf.quants.quantize(plain, Q.BF16)
    yield "blocks.q8_0", Q.Q8_0, gguf.quants.quantize(rows, Q.Q8_0)
    yield "blocks.q4_k", Q.Q4_K, q4_k_blocks(random, 2, 3)
    yield "blocks.q6_k", Q.Q6_K, q6_k_blocks(random, 3, 2)
    yield "cube", Q.F32, np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    yield "quantised_from", Q.F32, rows


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(7)
    writer = gguf.GGUFWriter(folder / "container.gguf", "nothing")
    writer.add_custom_alignment(64)
    writer.add_uint8("a.u8", 250)
    writer.add_int8("a.i8", -5)
    writer.add_uint16("a.u16", 65000)
    writer.add_int16("a.i16", -30000)
    writer.add_uint32("a.u32", 4000000000)
    writer.add_int32("a.i32", -2000000000)
    writer.add_float32("a.f32", 0.1)
    writer.add_bool("a.true", True)
    writer.add_bool("a.false", False)
    writer.add_string("a.text", "snow \u2603")
    writer.add_uint64("a.u64", 2**53 - 1)
    writer.add_int64("a.i64", -(2**53))
    writer.add_float64("a.f64", 0.1)
    writer.add_array("a.texts", ["", "one", "\u2603"])
    writer.add_array("a.floats", [0.5, -0.25, 3.0])
    writer.add_array("a.integers", [1, -2, 3])
    writer.add_array("a.truths", [True, False])
    values = {}
    for name, kind, data in tensors(random):
        writer.add_tensor(name, data, raw_dtype=kind)
        values[name] = np.ascontiguousarray(gguf.quants.dequantize(data, kind), np.float32)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    safetensors.numpy.save_file(values, folder / "container.safetensors")


if __name__ == "__main__":
    default = pathlib.Path(__file__).resolve().parents[1] / "fixtures/gguf"
    main(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else default)
