"""The bench for device data: reading and fitting pulses of three devices, 501 reads of each."""

import io
from importlib import resources

from rpukit import studies


class Fits:
    params = ["SoftBounds", "LinearStep", "ExpStep", "PowStep", "PiecewiseStep"]
    param_names = ["model"]

    def setup(self, model):
        self.data = studies.example_pulses("reram")
        self.time_fit(model)

    def time_fit(self, model):
        studies.fit_device(self.data, model)


class Ranking:
    """All models, with the error on left-out cycles."""

    def setup(self):
        self.data = studies.example_pulses("reram")
        studies.fit_device(self.data)

    def time_all(self):
        studies.fit_device(self.data, "all")


class Reading:
    def setup(self):
        file = resources.files("rpukit.studies").joinpath("data/reram.csv")
        self.text = file.read_text(encoding="utf-8")

    def time_read(self):
        studies.read_pulses(io.StringIO(self.text))
