# This machine: transfers in software, checked; cores are threads.
set(TARGET_SOURCES ${TARGETS}/host/dma_host.c ${TARGETS}/host/target_host.c)
set(TARGET_LIBRARIES m pthread)
set(TARGET_RUN env)
execute_process(COMMAND sh -c "echo | cc -march=native -dM -E - | grep -q __FMA__" RESULT_VARIABLE without)
if(without EQUAL 0)
  set(TARGET_FLAGS -mfma)
endif()
