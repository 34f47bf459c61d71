if(SHEAF_SANITIZE)
  add_compile_options(-fsanitize=${SHEAF_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  add_link_options(-fsanitize=${SHEAF_SANITIZE})
endif()
if(SHEAF_SANITIZE STREQUAL thread)
  # Where protobuf's headers see ThreadSanitizer, maps have two more members than in Debian's library, which does not:
  # they must not see it. Our own code looks for the other name.
  add_compile_options(-U__SANITIZE_THREAD__ -DSHEAF_SANITIZE_THREAD)
endif()
