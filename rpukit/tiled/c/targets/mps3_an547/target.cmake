# Arm MPS3 with a Cortex-M55, as QEMU has it. One instruction takes 64 ns of its clock of 32 MHz: 2.048 ticks.
include(${TARGETS}/cortex_m/cortex_m.cmake)
set(TARGET_FLAGS -mcpu=cortex-m55 -mthumb -mfloat-abi=hard -ffreestanding)
set(TARGET_RUN qemu-system-arm -M mps3-an547 -display none -icount shift=6 -semihosting -kernel)
