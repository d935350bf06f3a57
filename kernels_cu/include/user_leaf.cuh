// Placeholder: register_leaf replaces this file by the functions of a user's leaf.
#pragma once
