//! The operators of ONNX Runtime that real models carry, written by hand in the form of [`super::text`]
//! after its operator documentation and the schemas that its 1.32.0 wheel registers. A pure list.

use super::decode::Table;
use super::read;

/// The operators, by domain and name. `SimplifiedLayerNormalization` stands in the standard domain, where ONNX Runtime
/// registers it and its optimiser writes it. Attributes without a default here mean something else when absent, as the
/// operator's rule says (a scale of `1/sqrt(head_size)`, no clipping).
const TEXT: &str = "\
ai.onnx SimplifiedLayerNormalization 1 - (X:T;scale:V) (Y:V;inv_std_var:U?) {axis:int=-1;epsilon:float=1e-5;\
    stash_type:int=1} [T=f32,f16,f64,bf16;U=f32,f64;V=f32,f16,f64,bf16]\n\
com.microsoft Attention 1 - (input:T;weights:T;bias:T?;mask_index:M?;past:T?;attention_bias:T?;\
    past_sequence_length:M?) (output:T;present:T?) {do_rotary:int;mask_filter_value:float;num_heads:int!;\
    past_present_share_buffer:int;qkv_hidden_sizes:ints;rotary_embedding_dim:int;scale:float;\
    unidirectional:int=0} [M=i32;T=f32,f16,bf16]\n\
com.microsoft BiasGelu 1 - (A:T;B:T) (C:T) {} [T=f32,f16,f64,bf16]\n\
com.microsoft CDist 1 - (A:T;B:T) (C:T) {metric:string=sqeuclidean} [T=f32,f64]\n\
com.microsoft DynamicQuantizeLSTM 1 - (X:T;W:T2;R:T2;B:T?;sequence_lens:T1?;initial_h:T?;initial_c:T?;P:T?;\
    W_scale:T;W_zero_point:T2;R_scale:T;R_zero_point:T2) (Y:T?;Y_h:T?;Y_c:T?) {activation_alpha:floats;\
    activation_beta:floats;activations:strings;clip:float;direction:string=forward;hidden_size:int;\
    input_forget:int=0} [T=f32;T1=i32;T2=u8,i8]\n\
com.microsoft DynamicQuantizeMatMul 1 - (A:T1;B:T2;b_scale:T1;b_zero_point:T2?;bias:T1?) (Y:T1) {} [T1=f32;\
    T2=u8,i8]\n\
com.microsoft EmbedLayerNormalization 1 - (input_ids:T1;segment_ids:T1?;word_embedding:T;position_embedding:T;\
    segment_embedding:T?;gamma:T;beta:T;mask:T1?;position_ids:T1?) (output:T;mask_index:T1?;embedding_sum:T?) \
    {epsilon:float=1e-12;mask_index_type:int} [T=f32,f16;T1=i32]\n\
com.microsoft FastGelu 1 - (X:T;bias:T?) (Y:T) {} [T=f32,f16,f64,bf16]\n\
com.microsoft FusedConv 1 - (X:T;W:T;B:T?;Z:T?) (Y:T) {activation:string;activation_params:floats;\
    auto_pad:string=NOTSET;dilations:ints;group:int=1;kernel_shape:ints;pads:ints;strides:ints} [T=f32,f16,f64]\n\
com.microsoft FusedGemm 1 - (A:T;B:T;C:T?) (Y:T) {activation:string;activation_alpha:float;\
    activation_beta:float;activation_gamma:float;alpha:float=1;beta:float=1;transA:int=0;transB:int=0} \
    [T=f32,i32,i64,f16,f64,u32,u64]\n\
com.microsoft FusedMatMul 1 - (A:T;B:T) (Y:T) {alpha:float=1;transA:int=0;transB:int=0;transBatchA:int=0;\
    transBatchB:int=0} [T=f32,f16,f64,bf16]\n\
com.microsoft GatherBlockQuantized 1 - (data:T1;indices:Tind;scales:T2;zero_points:T1?) (output:T2) {bits:int=4;\
    block_size:int=128;gather_axis:int=0;quantize_axis:int=1} \
    [T1=u8,f8e4m3fn,f8e4m3fnuz,f8e5m2,f8e5m2fnuz,u4,i4,f4e2m1;T2=f32,f16,bf16;Tind=i32,i64]\n\
com.microsoft Gelu 1 - (X:T) (Y:T) {} [T=f32,f16,f64,bf16]\n\
com.microsoft GroupQueryAttention 1 - (query:T;key:T?;value:T?;past_key:T_CACHE?;past_value:T_CACHE?;\
    seqlens_k:M;total_sequence_length:M;cos_cache:T?;sin_cache:T?;position_ids:i64?;attention_bias:T?;\
    head_sink:T?;k_scale:T_KV_SCALE?;v_scale:T_KV_SCALE?;q_norm_weight:T?;k_norm_weight:T?;query_seqlens:M?) \
    (output:T;present_key:T_CACHE?;present_value:T_CACHE?;output_qk:T?) {causal:int=1;do_rotary:int;\
    k_norm_epsilon:float;k_quant_type:string=NONE;kv_cache_bit_width:int;kv_num_heads:int!;\
    local_window_size:int=-1;num_heads:int!;q_norm_epsilon:float;qk_norm_epsilon:float=1e-6;qk_output:int=0;\
    rotary_interleaved:int;scale:float;sliding_window_cache:int=0;smooth_softmax:int=-1;softcap:float;\
    v_quant_type:string=NONE} [M=i32;T=f32,f16,bf16;T_CACHE=f32,u8,i8,f16,bf16,f8e4m3fn;T_KV_SCALE=f32]\n\
com.microsoft Inverse 1 - (X:T) (Y:T) {} [T=f32,f16,f64]\n\
com.microsoft MatMulIntegerToFloat 1 - (A:T1;B:T2;a_scale:T3;b_scale:T3;a_zero_point:T1?;b_zero_point:T2?;\
    bias:T3?) (Y:T3) {} [T1=u8,i8;T2=u8,i8;T3=f32,f16]\n\
com.microsoft MatMulNBits 1 - (A:T1;B:T2;scales:T1;zero_points:T3?;g_idx:T4?;bias:T1?) (Y:T1) {K:int!;N:int!;\
    accuracy_level:int=0;bits:int=4;block_size:int!;weight_prepacked:int=0} [T1=f32,f16,bf16;T2=u8;\
    T3=f32,u8,f16,bf16;T4=i32]\n\
com.microsoft MultiHeadAttention 1 - (query:T;key:T?;value:T?;bias:T?;key_padding_mask:M?;attention_bias:T?;\
    past_key:T?;past_value:T?;past_sequence_length:M?;cache_indirection:M?) (output:T;present_key:T?;\
    present_value:T?;qk:QK?) {mask_filter_value:float;num_heads:int!;scale:float;unidirectional:int=0} [M=i32;\
    QK=f32,f16,bf16;T=f32,f16,bf16]\n\
com.microsoft NhwcMaxPool 1 - (x:T) (y:T) {auto_pad:string=NOTSET;ceil_mode:int=0;dilations:ints;\
    kernel_shape:ints!;pads:ints;strides:ints} [T=u8,i8]\n\
com.microsoft QAttention 1 - (input:T1;weight:T2;bias:T3;input_scale:T3;weight_scale:T3;mask_index:T4?;\
    input_zero_point:T1?;weight_zero_point:T2?;past:T3?) (output:T3;present:T3?) {do_rotary:int;\
    mask_filter_value:float;num_heads:int!;past_present_share_buffer:int;scale:float;unidirectional:int=0} \
    [T1=u8,i8;T2=u8,i8;T3=f32,f16;T4=i32]\n\
com.microsoft QGemm 1 - (A:TA;a_scale:T;a_zero_point:TA;B:TB;b_scale:T;b_zero_point:TB;C:TC?;y_scale:T?;\
    y_zero_point:TYZ?) (Y:TY) {alpha:float=1;transA:int=0;transB:int=0} [T=f32;TA=u8,i8;TB=u8,i8;TC=i32;\
    TY=f32,u8,i8;TYZ=u8,i8]\n\
com.microsoft QLinearAdd 1 - (A:T;A_scale:f32;A_zero_point:T?;B:T;B_scale:f32;B_zero_point:T?;C_scale:f32;\
    C_zero_point:T?) (C:T) {} [T=u8,i8]\n\
com.microsoft QLinearAveragePool 1 - (X:T;x_scale:f32;x_zero_point:T?;y_scale:f32;y_zero_point:T?) (Y:T) \
    {auto_pad:string=NOTSET;ceil_mode:int=0;channels_last:int=0;count_include_pad:int=0;kernel_shape:ints!;\
    pads:ints;strides:ints} [T=u8,i8]\n\
com.microsoft QLinearConcat 1 - (Y_scale:TF;Y_zero_point:T8;inputs:TV+~) (Y:T8) {axis:int!} [T8=u8,i8;TF=f32;\
    TV=f32,u8,i8]\n\
com.microsoft QLinearGlobalAveragePool 1 - (X:T;x_scale:f32;x_zero_point:T;y_scale:f32;y_zero_point:T) (Y:T) \
    {channels_last:int=0} [T=u8,i8]\n\
com.microsoft QLinearLeakyRelu 1 - (X:T;X_scale:f32;X_zero_point:T?;Y_scale:f32;Y_zero_point:T?) (Y:T) \
    {alpha:float=0.01} [T=u8,i8]\n\
com.microsoft QLinearMul 1 - (A:T;A_scale:f32;A_zero_point:T?;B:T;B_scale:f32;B_zero_point:T?;C_scale:f32;\
    C_zero_point:T?) (C:T) {} [T=u8,i8]\n\
com.microsoft QLinearSigmoid 1 - (X:T;X_scale:f32;X_zero_point:T?;Y_scale:f32;Y_zero_point:T?) (Y:T) {} \
    [T=u8,i8]\n\
com.microsoft QLinearSoftmax 1 - (X:T;X_scale:f32;x_zero_point:T?;y_scale:f32;y_zero_point:T) (Y:T) \
    {axis:int=-1;opset:int!} [T=u8,i8]\n\
com.microsoft QuickGelu 1 - (X:T) (Y:T) {alpha:float=1.702} [T=f32,f16,f64,bf16]\n\
com.microsoft Range 1 - (start:T;limit:T;delta:T?) (Y:T) {} [T=f32,i16,i32,i64,f64]\n\
com.microsoft RotaryEmbedding 1 - (input:T;position_ids:M;cos_cache:T;sin_cache:T) (output:T) {interleaved:int;\
    is_packed_batching:int;num_heads:int;rotary_embedding_dim:int;scale:float} [M=i64;T=f32,f16,bf16]\n\
com.microsoft SkipLayerNormalization 1 - (input:T;skip:T;gamma:T;beta:T?;bias:T?) (output:T;mean:U?;\
    inv_std_var:U?;input_skip_bias_sum:T?) {epsilon:float=1e-12} [T=f32,f16,bf16;U=f32]\n\
com.microsoft SkipSimplifiedLayerNormalization 1 - (input:T;skip:T;gamma:T;bias:T?) (output:T;mean:U?;\
    inv_std_var:U?;input_skip_bias_sum:T?) {epsilon:float=1e-12} [T=f32,f16,bf16;U=f32]\n\
com.microsoft Trilu 1 - (X:T;k:i64?) (Y:T) {upper:int=1} [T=f32,u8,i8,u16,i16,i32,i64,bool,f16,f64,u32,u64,bf16]\n\
";

/// The list as a table.
pub(super) fn table() -> Table {
    read::read(TEXT).expect("the constant text is well formed: a test reads it")
}
