# What all Cortex-M boards have in common; a board sets its processor and its memories (memory.ld).
set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR arm)
set(CMAKE_C_COMPILER arm-none-eabi-gcc)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
set(TARGET_INCLUDE ${TARGETS}/cortex_m)
set(TARGET_SOURCES ${TARGETS}/cortex_m/start.c ${TARGETS}/bare/bare.c)
set(TARGET_LINK -nostdlib -Wl,--gc-sections -L ${TARGETS}/cortex_m -T ${TARGETS}/${TARGET}/memory.ld)
set(TARGET_LIBRARIES gcc)
