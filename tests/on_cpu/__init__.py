"""The runner that lets `rpukit.testing.on_cpu` run ``.cu`` sources with g++, on any machine."""
