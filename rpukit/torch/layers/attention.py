"""`AnalogMultiheadAttention`: attention with its four projections in tiles."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

from rpukit.errors import ParameterError, ShapeError
from rpukit.random import Stream
from rpukit.torch._torch import torch
from rpukit.torch.layers.linear import AnalogLinear

__all__ = ["AnalogMultiheadAttention"]

Tensor = Any
nn = torch.nn
_SETTINGS = ("embed_dim", "num_heads", "dropout", "batch_first", "kdim", "vdim", "head_dim")


class AnalogMultiheadAttention(torch.nn.Module):  # type: ignore[misc]
    """Attention with its projections in tiles, as ``torch.nn.MultiheadAttention``.

    The projections of queries, keys and values and the one of the outputs are layers of tiles;
    the products of queries and keys, softmax and the sums of values are digital.

    Parameters
    ----------
    embed_dim, num_heads : int
    dropout, bias, kdim, vdim, batch_first : as of ``torch.nn.MultiheadAttention``
    cell, seed, device : as of `AnalogLinear`

    Raises
    ------
    ParameterError, DeviceError

    Examples
    --------
    >>> import torch, rpukit as rk
    >>> layer = rk.torch.nn.AnalogMultiheadAttention(8, 2, cell=rk.SoftBounds(), seed=7)
    >>> x = torch.ones(5, 3, 8)
    >>> layer(x, x, x)[0].shape
    torch.Size([5, 3, 8])
    """

    DIGITAL: ClassVar[Any] = nn.MultiheadAttention

    # What PyTorch's encoder layers ask before they take a path around this layer, which they do
    # not take where there is no bias of one product for queries, keys and values.
    in_proj_bias = None
    _qkv_same_embed_dim = False

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        cell: Any,
        seed: int | Stream | None = None,
        device: Any = None,
    ) -> None:
        super().__init__()
        sizes = {"kdim": kdim, "vdim": vdim, "batch_first": batch_first}
        module = nn.MultiheadAttention(embed_dim, num_heads, dropout, bias, **sizes)
        self._adopt(module, cell, seed)
        self.to(device or "cpu")

    @classmethod
    def from_digital(cls, module: Any, cell: Any, *, seed: int | Stream | None = None) -> Self:
        """Make an analog layer with the weights and settings of a digital one.

        Parameters
        ----------
        module : torch.nn.MultiheadAttention
            Without biases of keys and values as further elements of the sequence.
        cell : Cell, InferenceCell, NoiseModel, AnalogSettings or TileConfig
        seed : int or Stream, optional
            Default: drawn from PyTorch's generator.

        Returns
        -------
        AnalogMultiheadAttention

        Raises
        ------
        ParameterError
        """
        layer = cls.__new__(cls)
        nn.Module.__init__(layer)
        layer._adopt(module, cell, seed)
        return layer

    def _adopt(self, module: Any, cell: Any, seed: Any) -> None:
        if module.bias_k is not None or module.add_zero_attn:
            raise ParameterError("add_bias_kv and add_zero_attn: got True, need False")
        for name in _SETTINGS:
            setattr(self, name, getattr(module, name))
        stream = Stream.from_seed(int(torch.randint(2**62, ())) if seed is None else seed)
        if module._qkv_same_embed_dim:
            weights = module.in_proj_weight.detach().chunk(3)
        else:
            parts = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
            weights = tuple(part.detach() for part in parts)
        given = module.in_proj_bias
        biases = (None,) * 3 if given is None else given.detach().chunk(3)
        weights += (module.out_proj.weight.detach(),)
        last = module.out_proj.bias
        biases += (None if last is None else last.detach(),)
        for k, name in enumerate(("q_proj", "k_proj", "v_proj", "out_proj")):
            linear = _linear(weights[k], biases[k])
            setattr(self, name, AnalogLinear.from_digital(linear, cell, seed=stream.child(k)))
        self.train(module.training)

    def to_digital(self) -> Any:
        """Make the digital layer with the weights that the products see now.

        Returns
        -------
        torch.nn.MultiheadAttention
        """
        settings = {name: getattr(self, name) for name in _SETTINGS if name != "head_dim"}
        layers = [self.q_proj, self.k_proj, self.v_proj]
        biases = [layer.get_bias() for layer in layers]
        module = nn.MultiheadAttention(**settings, bias=biases[0] is not None)
        weights = [layer.get_weights() for layer in layers]
        module.to(device=weights[0].device, dtype=weights[0].dtype)
        with torch.no_grad():
            if module._qkv_same_embed_dim:
                module.in_proj_weight.copy_(torch.cat(weights))
            else:
                for name, weight in zip("qkv", weights, strict=True):
                    getattr(module, f"{name}_proj_weight").copy_(weight)
            module.out_proj.weight.copy_(self.out_proj.get_weights())
            if biases[0] is not None:
                module.in_proj_bias.copy_(torch.cat(biases))
                module.out_proj.bias.copy_(self.out_proj.get_bias())
        return module.train(self.training)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Attend to values by the products of queries and keys.

        Parameters
        ----------
        query, key, value : Tensor
            As of ``torch.nn.MultiheadAttention``: (n_step, n, n_feature), with the first two
            axes exchanged where `batch_first`, or without the axis of n.
        key_padding_mask, attn_mask : Tensor, optional
            True, or minus infinity to be added, where a query must not attend to a key.
        need_weights, average_attn_weights : bool
            Whether the weights of the values are returned, and whether as the mean over heads.
        is_causal : bool
            Without an `attn_mask`: a query attends to no later key.

        Returns
        -------
        output : Tensor, shape of `query`
        weights : Tensor, shape (n, n_query, n_key) or (n, n_head, n_query, n_key), or None

        Raises
        ------
        ShapeError, DTypeError, DeviceError, NonFiniteError
        """
        single = query.dim() == 2
        if query.dim() not in (2, 3):
            raise ShapeError(f"query: got {query.dim()} axes, need 3, or 2 for one sequence")
        given = [query, key, value]
        if single:
            given = [x.unsqueeze(0) for x in given]
        elif not self.batch_first:
            given = [x.transpose(0, 1) for x in given]
        layers = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (self._heads(layer(x)) for layer, x in zip(layers, given, strict=True))
        scores = (q / math.sqrt(self.head_dim)) @ k.transpose(-1, -2)
        if is_causal and attn_mask is None:
            attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        if attn_mask is not None:
            several = attn_mask.dim() == 3
            scores = scores + _added(attn_mask.view(scores.shape) if several else attn_mask, q)
        if key_padding_mask is not None:
            rows = key_padding_mask.unsqueeze(0) if single else key_padding_mask
            scores = scores + _added(rows[:, None, None, :], q)
        weights = torch.softmax(scores, dim=-1)
        kept = nn.functional.dropout(weights, self.dropout, self.training)
        y = self.out_proj((kept @ v).transpose(1, 2).flatten(2))
        shown = weights.mean(1) if average_attn_weights else weights
        if single:
            y, shown = y.squeeze(0), shown.squeeze(0)
        elif not self.batch_first:
            y = y.transpose(0, 1)
        return y, shown if need_weights else None

    def _heads(self, x: Tensor) -> Tensor:
        """Cut the features of (n, n_step, n_feature) into heads, (n, n_head, n_step, n)."""
        return x.unflatten(-1, (self.num_heads, self.head_dim)).transpose(1, 2)


def _linear(weight: Tensor, bias: Tensor | None) -> Any:
    """Make a digital linear layer of these weights."""
    linear = nn.Linear(weight.shape[1], weight.shape[0], bias is not None)
    linear.to(weight.device, weight.dtype)
    with torch.no_grad():
        linear.weight.copy_(weight)
        if bias is not None:
            linear.bias.copy_(bias)
    return linear


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """Return what is added to scores where a mask is True, or the mask itself if it is numbers."""
    if mask.dtype is not torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=like.dtype).masked_fill(mask, -math.inf)
