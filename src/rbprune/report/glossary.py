"""The words of the pages that somebody who never read about the method may not know, each in a sentence or two."""

from __future__ import annotations

GLOSSARY = {
    "verdict": "What the run came to against what was asked for: good, bad (with what to change), or unknown where no "
    "data told what the pruning cost.",
    "MACs": "Multiply-accumulates: how many products of two numbers are added up in one forward pass of one example. "
    "The usual measure of what a network computes.",
    "parameters": "The weights of convolutions and linear layers, which is most of what a file of the network holds.",
    "latency": "How long one forward pass takes, measured on the machine that is named, the dense and the pruned "
    "network in turns. The ratio is the median over the turns, which may differ from that of the two medians where "
    "others use the machine. It rarely falls as much as the MACs do.",
    "validation": "Examples that were held out from training. Every choice of a run looks at them and never at the "
    "test data, so a validation figure is compared with the dense network's validation figure.",
    "dense epoch": "What training the unpruned (dense) network for one epoch costs. A smaller network takes less of "
    "it, so runs of different methods can be compared.",
    "site": "A set of channels that is made and read together, named after the layer that makes it. Its channels are "
    "judged one by one, and a channel goes from all layers of the site at once.",
    "stage": "A stretch of training in which the channels of one site, or of several at once, are judged. At its end "
    "the redundant channels are removed.",
    "settled": "Whether the rates had come to rest when the stage ended. A stage that had not may decide more if it is "
    "given more epochs.",
    "rate": "The dropout rate that the method infers for a channel, from 0 to 1: near 0 the data needs the channel, "
    "near 1 it is noise.",
    "undecided": "The share of channels whose evidence could not be told from their price. In doubt a channel stays.",
    "price": "What a channel has to be worth to stay, in nats of log-likelihood over the whole training set. A higher "
    "price makes a smaller network.",
    "nats": "The unit of log-likelihood with the natural logarithm, as in the cross-entropy loss: a rise of the loss "
    "by 0.01 nats per example makes the right answers about 1 % less probable.",
    "forecast": "By how many nats per example the training loss would rise with the cut, as foretold before it.",
    "measured": "By how many nats per example the training loss did rise from just before the cut to just after it.",
    "since dense": "How far the training loss after the cut is above that of the dense network, in nats per example.",
    "taken back": "Channels that were to go and stayed, because without them the training loss would have risen "
    "further than prune.max_rise allows.",
    "guard": "All channels of a site were redundant; one was kept so that the network stays whole.",
    "not pruned": "The method at hand leaves this site alone, so all of its channels stay. "
    "The command: rbprune inspect MODEL --method NAME says why.",
    "KL": "The divergence of the inferred rates from their prior: what the method adds to the training loss.",
}
"""Each word with what it means; pages show it under the pointer, on focus, and in a list at their end."""
