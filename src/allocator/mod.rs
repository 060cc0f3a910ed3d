//! PyTorch's caching allocator as an executable model: one implementation, generic over where memory comes from.
