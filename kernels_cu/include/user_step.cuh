// The step function of a model from outside rpukit stands in for this file: see register_step.
#pragma once
