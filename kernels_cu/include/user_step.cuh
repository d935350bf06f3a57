// Placeholder: register_step replaces this file by the step function of a user's model.
#pragma once
