# Arm MPS2 with a Cortex-M33 and a DMA controller PL081, as QEMU has it. One instruction takes 64 ns of its clock of
# 20 MHz: 1.28 ticks.
include(${TARGETS}/cortex_m/cortex_m.cmake)
list(APPEND TARGET_SOURCES ${TARGETS}/cortex_m/dma_pl081.c)
set(TARGET_FLAGS -mcpu=cortex-m33 -mthumb -mfloat-abi=hard -mfpu=fpv5-sp-d16 -ffreestanding -DPL081=0x50110000)
set(TARGET_RUN qemu-system-arm -M mps2-an505 -display none -icount shift=6 -semihosting -kernel)
