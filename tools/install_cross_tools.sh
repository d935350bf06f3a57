#!/usr/bin/env bash
# Cross compilers and QEMU for the tests of generated C: installed by apt-get where they are missing and it can.
set -euo pipefail

declare -A packages=(
    [arm-none-eabi-gcc]=gcc-arm-none-eabi [qemu-system-arm]=qemu-system-arm
    [riscv64-unknown-elf-gcc]=gcc-riscv64-unknown-elf [qemu-system-riscv32]=qemu-system-misc
    [cmake]=cmake [make]=make
)
missing=()
for tool in "${!packages[@]}"; do
    command -v "$tool" >/dev/null || missing+=("${packages[$tool]}")
done
[ ${#missing[@]} -eq 0 ] && exit 0
if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
    apt-get update -qq && apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null && exit 0
fi
echo "cross tools are missing, and this script cannot install them: apt-get install ${missing[*]}" >&2
exit 1
