"""Writes the request bodies of this folder, with the stock client.

    pip install 'tritonclient[http]==2.73.0'
    python write_bodies.py

`json.body` and `binary.body` carry the same tensors; the test knows what they hold.
"""

from pathlib import Path

import numpy as np
import tritonclient.http as http

FOLDER = Path(__file__).parent


def inputs(binary):
    tensors = {
        "x": ("FP32", np.array([[0.1, -0.0, 1e-45], [3.4028235e38, 1 / 3, 2]], np.float32)),
        "id": ("INT64", np.array([-(2**63), 2**63 - 1], np.int64)),
        "big": ("UINT64", np.array([2**64 - 1], np.uint64)),
        "flag": ("BOOL", np.array([True, False])),
        "text": ("BYTES", np.array(["é\n", ""], object)),
    }
    for name, (datatype, values) in tensors.items():
        tensor = http.InferInput(name, values.shape, datatype)
        tensor.set_data_from_numpy(values, binary_data=binary)
        yield tensor


def write(name, binary, **arguments):
    body, header_length = http.InferenceServerClient.generate_request_body(
        list(inputs(binary)), request_id="7", **arguments
    )
    (FOLDER / name).write_bytes(body)
    print(name, len(body), header_length)


write(
    "json.body",
    False,
    outputs=[
        http.InferRequestedOutput("y", binary_data=False),
        http.InferRequestedOutput("z", binary_data=True, class_count=3),
    ],
)
write(
    "binary.body",
    True,
    sequence_id=2**64 - 1,
    sequence_start=True,
    priority=1,
    timeout=5000,
    parameters={"max_steps": 10},
)
