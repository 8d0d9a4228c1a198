# examples/04_server/install_and_run.cmake -- the test of the installed package: install, build this example, run it.
# SPDX-License-Identifier: Apache-2.0
#
# cmake -DBUILD=<seqtile's build folder> -DSOURCE=<this folder> -DWORK=<scratch folder> -DGENERATOR=... -DCOMPILER=...
#       -P install_and_run.cmake
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
function(run)
  execute_process(COMMAND ${ARGV} WORKING_DIRECTORY ${WORK} COMMAND_ERROR_IS_FATAL ANY)
endfunction()
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${WORK}/prefix)
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK}/build -G ${GENERATOR} -DCMAKE_BUILD_TYPE=Release
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${WORK}/prefix)
run(${CMAKE_COMMAND} --build ${WORK}/build)
run(${WORK}/build/server ${WORK}/tuning.db ${WORK}/artifacts.db)
run(${WORK}/prefix/bin/seqtile devices)
