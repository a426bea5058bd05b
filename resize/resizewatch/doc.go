// Package resizewatch wakes controllers that are built with controller-runtime when a resize moves on, and at no other time: a
// pod's status changes far more often than anything that a resize.Resizer judges. It is a package of its own so that package
// resize does not need controller-runtime.
//
// PodMoved is for the in-place path. PodOf and CRIResizeMoved are for the CRI path, where the pod itself does not change.
//
// A Resizer also asks to be called again after Result.RetryAfter, when nothing has moved: the predicates filter a cache's
// periodic resync too, so return it as RequeueAfter.
package resizewatch
