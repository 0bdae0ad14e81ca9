"""The weights of a layer that reads the channels of a site: where they are, and how they are written."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rbprune.graph import ChannelGraph, Site
from rbprune.graph.sites import Part


def weight_columns(graph: ChannelGraph, site: Site, part: Part) -> Tensor:
    """For each channel of a site the places of its weights in a flattened filter of a reader: [channels, weights]."""
    kernel = layer_weight(graph.module(part.owner))[0, 0].numel()
    first = graph.places(site, part) * kernel
    return (first.unsqueeze(-1) + torch.arange(kernel)).flatten(1)


def write_weights(layer: nn.Module, columns: Tensor, values: Tensor, bias: Tensor | None = None) -> None:
    """Put values [filters, columns] at these places of the flattened filters and, where the layer has a bias and one is
    given, that into it."""
    weight = layer_weight(layer)
    with torch.no_grad():
        filters = weight.flatten(1).clone()  # in channels-last memory it would be a copy anyway
        filters[:, columns.to(weight.device)] = values.to(weight)
        weight.copy_(filters.view(weight.shape))
        if bias is not None and isinstance(layer.bias, Tensor):
            layer.bias.copy_(bias)


def layer_weight(layer: nn.Module) -> Tensor:
    """The weight of a convolution or linear layer."""
    weight = layer.weight
    assert isinstance(weight, Tensor)
    return weight
