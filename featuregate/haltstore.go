package featuregate

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
)

const (
	// HaltConfigMap is the name that the halt's ConfigMap usually has.
	HaltConfigMap = "podresize-halt"
	// ReasonRegionHalted is the reason of the Event that tells of a halt.
	ReasonRegionHalted = "RegionHalted"

	// noRegion is the key for nodes without a region; no label value begins like that.
	noRegion = "_none"
	// writeAttempts bounds how often a write that met another one is tried again.
	writeAttempts = 5
	fieldManager  = "podresize-halt"
)

// ConfigMapHalts keeps the halted regions in a ConfigMap of their own: a key for each region, with the record as its value. It is
// made with the first halt. Only one process should halt regions; removing a key, or the whole ConfigMap, is for people: that clears
// the halt. It needs list and watch on that ConfigMap, get, create and update to halt, and create on events.
type ConfigMapHalts struct {
	client          kubernetes.Interface
	namespace, name string

	mu     sync.Mutex
	latest *corev1.ConfigMap
	tell   func(map[string]Halted)
}

var _ HaltStore = (*ConfigMapHalts)(nil)

// NewConfigMapHalts makes a ConfigMapHalts.
func NewConfigMapHalts(client kubernetes.Interface, namespace, name string) *ConfigMapHalts {
	return &ConfigMapHalts{client: client, namespace: namespace, name: name}
}

// Follow implements HaltStore. It is to be called once.
func (c *ConfigMapHalts) Follow(ctx context.Context, tell func(map[string]Halted)) error {
	c.mu.Lock()
	c.tell = tell
	c.mu.Unlock()
	return followConfigMap(ctx, c.client, c.namespace, c.name, c.see)
}

// see tells of what the ConfigMap holds, unless it is older than what this process has written.
func (c *ConfigMapHalts) see(object *corev1.ConfigMap) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if object != nil && c.latest != nil {
		order, err := resourceversion.CompareResourceVersion(object.ResourceVersion, c.latest.ResourceVersion)
		if err == nil && order < 0 {
			return
		}
	}
	if object != nil {
		c.latest = object
	}
	if c.tell != nil {
		c.tell(recordsOf(object))
	}
}

func recordsOf(object *corev1.ConfigMap) map[string]Halted {
	out := map[string]Halted{}
	if object == nil {
		return out
	}
	for key, text := range object.Data {
		var h Halted
		if err := json.Unmarshal([]byte(text), &h); err != nil {
			h = Halted{Message: "its record cannot be read"}
		}
		if key == noRegion {
			key = ""
		}
		out[key] = h
	}
	return out
}

// Halt implements HaltStore.
func (c *ConfigMapHalts) Halt(ctx context.Context, region string, why Halted) error {
	record, err := json.Marshal(why)
	if err != nil {
		return fmt.Errorf("encoding the record: %w", err)
	}
	key := region
	if region == "" {
		key = noRegion
	}
	var written *corev1.ConfigMap
	for range writeAttempts {
		written, err = c.write(ctx, key, string(record))
		if !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("writing ConfigMap %q: %w", c.namespace+"/"+c.name, err)
	}
	c.see(written)
	return c.announce(ctx, written, region, why)
}

// write adds a key, to the very object that was read.
func (c *ConfigMapHalts) write(ctx context.Context, key, record string) (*corev1.ConfigMap, error) {
	maps := c.client.CoreV1().ConfigMaps(c.namespace)
	object, err := maps.Get(ctx, c.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		object = &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name, Labels: map[string]string{"app.kubernetes.io/managed-by": "podresize"}},
			Data:       map[string]string{key: record},
		}
		return maps.Create(ctx, object, metav1.CreateOptions{FieldManager: fieldManager})
	}
	if err != nil {
		return nil, err
	}
	if _, there := object.Data[key]; there {
		return object, nil
	}
	if object.Data == nil {
		object.Data = map[string]string{}
	}
	object.Data[key] = record
	return maps.Update(ctx, object, metav1.UpdateOptions{FieldManager: fieldManager})
}

// announce writes an Event about the ConfigMap. Without the right to it the halt holds all the same, and the error says so.
func (c *ConfigMapHalts) announce(ctx context.Context, object *corev1.ConfigMap, region string, why Halted) error {
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: c.name + "." + string(uuid.NewUUID())},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "ConfigMap", Namespace: c.namespace, Name: c.name, UID: object.UID, ResourceVersion: object.ResourceVersion,
		},
		Type: corev1.EventTypeWarning, Reason: ReasonRegionHalted, Message: fmt.Sprintf("region %q is halted: %s", region, why.Message),
		FirstTimestamp: metav1.NewTime(why.Since), LastTimestamp: metav1.NewTime(why.Since), Count: 1,
		Source: corev1.EventSource{Component: "podresize"}, ReportingController: "podresize.dev/gate",
	}
	if _, err := c.client.CoreV1().Events(c.namespace).Create(ctx, event, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("telling of it by an Event: %w", err)
	}
	return nil
}
