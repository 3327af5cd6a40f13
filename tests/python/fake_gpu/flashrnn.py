"""Stands for FlashRNN."""

import dataclasses


@dataclasses.dataclass
class FlashRNNConfig:
    """The options of FlashRNN 1.0.8 that are used."""

    backend: str
    function: str
    head_dim: int
    num_heads: int
    batch_size: int
    dtype: str
    input_shape: str
    recurrent_shape: str
    bias_shape: str
    output_shape: str


def flashrnn(x, recurrent, bias, config):
    axes = (config.input_shape, config.recurrent_shape, config.bias_shape)
    for tensor, names in zip((x, recurrent, bias), axes, strict=True):
        sizes = dict(zip(names, tensor.sizes[0], strict=True))
        assert sizes["G"] == 4 and sizes["D"] == config.head_dim and sizes["H"] == 1
        assert sizes.get("B", config.batch_size) == config.batch_size
