"""Examples of networks in tiles: ``python -m rpukit.torch.examples.lenet`` and others.

Each prints a table of accuracies with spreads over seeds beside those of digital networks, and
the time it took; ``--figure FILE`` draws it. They run on a CPU in minutes; ``--quick`` is short.
"""
