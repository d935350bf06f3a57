# Arm MPS2 with a Cortex-M7, as QEMU has it. One instruction takes 64 ns of its clock of 25 MHz: 1.6 ticks.
include(${TARGETS}/cortex_m/cortex_m.cmake)
set(TARGET_FLAGS -mcpu=cortex-m7 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16 -ffreestanding)
set(TARGET_RUN qemu-system-arm -M mps2-an500 -display none -icount shift=6 -semihosting -kernel)
