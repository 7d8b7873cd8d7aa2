/**
 * A machine that gives its processor to others needs more time than an idle one; what comes is waited for no
 * longer than until it is there.
 */
export const PATIENCE = 3;
