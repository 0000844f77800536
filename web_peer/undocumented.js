// Packages in which exported functions and classes lack a comment, still, and how many: check_docs.js lets no number rise.
export const UNDOCUMENTED = {};
